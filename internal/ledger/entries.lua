-- A page of the audit log, at one moment: the oldest entry that is kept, then those asked for. The oldest alone if it is
-- not one.
-- KEYS: log (list)
-- ARGV: number of the first entry wanted (if it went, the oldest takes its place), how many
local oldest = redis.call('LINDEX', KEYS[1], 0)
if not oldest then
  return {}
end
local first = tonumber(string.match(oldest, '^{"seq":(%d+),'))
if not first then
  return {oldest}
end
local from = math.max(tonumber(ARGV[1]) - first, 0)
local page = redis.call('LRANGE', KEYS[1], from, from + tonumber(ARGV[2]) - 1)
table.insert(page, 1, oldest)
return page
