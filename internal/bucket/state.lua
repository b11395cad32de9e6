-- What the families share: the twin of state.go. SPEC.md is the law for both.
--
-- Every number here is an integer below 2^53, where a double still counts by one; only + - * floor(a/b) min max are
-- used on them. A number never meets tostring or the .. operator, which keep 14 digits.

local floor, max, min = math.floor, math.max, math.min

local MAX_TIME = 2^53 - 2^50
local MAX_COST = 2^33
local MAX_PERIOD = 10 * 365 * 86400 * 1000000
local MAX_PRODUCT = 2^52
local NEVER = -1
local BACKSTEP = 1000000

local LOOK, FIT, REPORT, COUNT = 0, 1, 2, 3

local function ceil(a, b)
  return floor((a + b - 1) / b)
end

-- need returns the hits that must be in hand for charge c to fit.
local function need_of(c, before)
  if c.hits == 0 then
    return (c.envoy and 0 or 1) + before
  elseif c.at_least > 0 then
    return min(c.at_least, c.hits) + before
  end
  return c.hits + before
end
