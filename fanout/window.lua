-- Returns the stored live frames above an id, oldest first, as far as they fit into an answer.
--
-- KEYS: 1 the thread's stream.
-- ARGV: 1 the id, 2 how many frames at most, 3 how many bytes at most; one larger frame still gets through.
-- Returns a 1 if there are more, or a 0, and then an id and a body for each frame. An entry without a body has an empty one.
local entries = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
local limit, room = tonumber(ARGV[2]), tonumber(ARGV[3])
local found = {#entries == limit and 1 or 0}

for i, entry in ipairs(entries) do
  local body = entry[2][1] == 'f' and entry[2][2] or ''
  room = room - #body
  if room < 0 and i > 1 then
    found[1] = 1
    break
  end
  found[#found + 1] = entry[1]
  found[#found + 1] = body
end
return found
