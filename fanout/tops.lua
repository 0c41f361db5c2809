-- Returns the id of the newest entry of each stream, or an empty text where there is none.
--
-- KEYS: the streams.
local tops = {}
for i, stream in ipairs(KEYS) do
  local top = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  tops[i] = top[1] and top[1][1] or ''
end
return tops
