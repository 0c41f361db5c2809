-- Deletes a stream, if its newest entry still is the one that somebody has judged.
--
-- KEYS: 1 the stream.
-- ARGV: 1 the id of that entry.
local top = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if top[1] and top[1][1] == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return false
