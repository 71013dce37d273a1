-- Reads the daemon's answer as if anybody could have written it.
--
-- read(text) returns the whole plan, or nil, the first thing in it that is not exactly as it must
-- be, and "garbage" ("error" when the daemon itself says so): then nothing at all is assigned.
--   plan.decision  16 hex digits        plan.stamp    printable ASCII, or nil
--   plan.options   option -> value      plan.env      variable -> value
--   plan.message   one line, or nil     plan.changes  whether options has anything

local use = ...
local json = use("json")

local MAX_STAMP, MAX_MESSAGE = 2000, 500
local COUNT = "^[1-9]%d?%d?%d?%d?%d?$"
local OPTIONS = {
  ["constraint"] = "^%w[%w_.%-]*$",
  ["cpu-freq"] = "^%d+%-%d+$",
  ["cpus-per-task"] = COUNT,
  ["nodes"] = COUNT,
  ["ntasks"] = COUNT,
  ["ntasks-per-node"] = COUNT,
}
local VARIABLES = { OMP_NUM_THREADS = COUNT, SRUN_CPUS_PER_TASK = COUNT }

local M = {}

-- Whether text is a stamp: what may be put into an admin comment as it is.
function M.is_stamp(text)
  return type(text) == "string" and #text <= MAX_STAMP
    and text:find("^advisor:{[ -~]*}$") ~= nil
end

-- Whether a line can do no more to a terminal than be read: ASCII, and of the rest no control
-- characters and nothing that hides or turns text around.
local function printable(text)
  if #text > MAX_MESSAGE or text:find("[%z\1-\31\127]") then return false end
  if not text:find("[\128-\255]") then return true end
  local left = text
    :gsub("\194[\160-\191]", " ")
    :gsub("[\195-\223][\128-\191]", " ")
    :gsub("\226\128[\144-\167\176-\190]", " ")
    :gsub("\226[\130-\191][\128-\191]", " ")
    :gsub("[\225\227-\236][\128-\191][\128-\191]", " ")
  return not left:find("[\128-\255]")
end

local function checked(given, patterns, what)
  if type(given) ~= "table" then return nil, "no " .. what end
  local result = {}
  for name, value in pairs(given) do
    local pattern = patterns[name]
    if not pattern then return nil, ("%s %q is not one the advisor writes"):format(what, tostring(name)) end
    if type(value) ~= "string" or #value > 64 or not value:find(pattern) then
      return nil, ("%s %s has a value that makes no sense"):format(what, name)
    end
    result[name] = value
  end
  return result
end

local function read(data)
  if type(data.decision) ~= "string" or not data.decision:find("^%x+$") or #data.decision ~= 16 then
    return nil, "no decision"
  end
  local plan, problem = { decision = data.decision }, nil
  plan.options, problem = checked(data.rewrite, OPTIONS, "option")
  if not plan.options then return nil, problem end
  plan.env, problem = checked(data.env or {}, VARIABLES, "variable")
  if not plan.env then return nil, problem end
  plan.changes = next(plan.options) ~= nil
  local low, high = (plan.options["cpu-freq"] or "0-0"):match("(%d+)%-(%d+)")
  if #high > 9 or tonumber(low) > tonumber(high) then return nil, "cpu-freq makes no sense" end
  if data.stamp ~= nil then
    if not M.is_stamp(data.stamp) then return nil, "the stamp is malformed" end
    plan.stamp = data.stamp
  end
  if data.message ~= nil and data.message ~= "" then
    if type(data.message) ~= "string" or not printable(data.message) then
      return nil, "the message is not one printable line"
    end
    plan.message = data.message
  end
  return plan
end

function M.read(text)
  local data, problem = json.decode(text)
  if type(data) ~= "table" then return nil, "the daemon's answer is not JSON: " .. tostring(problem), "garbage" end
  if type(data.error) == "string" then return nil, "the daemon says: " .. data.error:sub(1, 200), "error" end
  if data.v ~= 1 then return nil, "the daemon does not speak protocol version 1", "garbage" end
  local plan
  plan, problem = read(data)
  if plan then return plan end
  return nil, "the daemon's answer makes no sense: " .. problem, "garbage"
end

return M
