-- Stores live frames of one attempt and publishes those that were accepted, in one step.
--
-- KEYS: 1 the thread's stream, 2 its channel.
-- ARGV: 1 fence, 2 length of the stream, 3 seconds the stream is kept, 4 largest payload to publish in bytes,
--       then pairs of n and body.
-- Returns nothing if they were accepted, also when an earlier try stored them; the newest id if it has a larger fence.
--
-- The ids are <fence>-<n>, so the stream itself holds the order; a fence that has written shuts smaller ones out.
-- A number in a script is exact up to 2^53, and fences are microseconds since 1970: good for two centuries.
local stream, channel = KEYS[1], KEYS[2]
local fence = tonumber(ARGV[1])
local publish_max = tonumber(ARGV[4])

local top_fence, top_n = 0, 0
local top = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
if top[1] then
  local f, n = string.match(top[1][1], '(%d+)-(%d+)')
  top_fence, top_n = tonumber(f), tonumber(n)
end
if top_fence > fence then
  return top[1][1]
end
if top_fence < fence then
  top_n = 0
end

for i = 5, #ARGV, 2 do
  local n, body = tonumber(ARGV[i]), ARGV[i + 1]
  if n > top_n then
    local id = ARGV[1] .. '-' .. ARGV[i]
    redis.call('XADD', stream, 'MAXLEN', '~', ARGV[2], id, 'f', body)
    if #body > publish_max then
      redis.call('PUBLISH', channel, 'P' .. id)
    else
      redis.call('PUBLISH', channel, 'L' .. id .. ' ' .. body)
    end
  end
end
redis.call('EXPIRE', stream, ARGV[3])
return false
