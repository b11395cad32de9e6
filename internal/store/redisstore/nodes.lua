-- Notes that a node is alive and counts those that are. KEYS holds the list of nodes; ARGV the node's name of 16 bytes, and
-- for how many milliseconds it is alive without telling so again, 0 if it leaves. The list is 24 bytes a node: its name and
-- until when it is alive. What cannot be read as one is empty.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local alive = tonumber(ARGV[2])

local list = redis.call('MGET', KEYS[1])[1] or ''
if #list % 24 ~= 0 then
  list = ''
end
local kept, last = {}, 0
local function keep(name, till)
  kept[#kept + 1] = name .. struct.pack('<I8', till)
  last = math.max(last, till)
end
for at = 1, #list, 24 do
  local name = string.sub(list, at, at + 15)
  local till = struct.unpack('<I8', list, at + 16)
  -- A clock that was set back leaves nobody alive for long.
  if name ~= ARGV[1] and till > now and till <= now + 3600000 and #kept < 10000 then
    keep(name, till)
  end
end
if alive > 0 then
  keep(ARGV[1], now + alive)
end

if #kept > 0 then
  redis.call('SET', KEYS[1], table.concat(kept), 'PX', string.format('%d', last - now))
else
  redis.call('DEL', KEYS[1])
end
return #kept
