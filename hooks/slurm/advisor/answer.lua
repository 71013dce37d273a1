-- Reads the daemon's answer as if anybody could have written it.
--
-- read(text) returns the whole plan, or nil, the first thing in it that is not exactly as it must
-- be, and "garbage" ("error" when the daemon itself says so): then nothing at all is assigned.
--   plan.decision  16 hex digits        plan.stamp    printable ASCII, or nil
--   plan.options   option -> value      plan.env      variable -> value
--   plan.message   one line, or nil     plan.changes  whether options or env have anything
--   plan.always    whether the message is also for who does not sit at a terminal
--   plan.program   path, size, mtime, build: the file to look at (see program.lua), or nil
--   plan.steps     what the job's steps get (see step.lua), or nil

local use = ...
local config = use("config")

local MAX_STAMP, MAX_STEPS, MAX_MESSAGE = 2000, 2000, 500
local MAX_KHZ = 20000000 -- no processor's
local COUNT = "^[1-9]%d?%d?%d?%d?%d?$"
local OPTIONS = setmetatable({
  ["constraint"] = "^%w[%w_.%-]*$",
  ["cpu-freq"] = "^%d+%-%d+$",
  ["cpus-per-task"] = COUNT,
}, {
  __index = function(_, name) -- clocks and limits of GPUs
    local axis = use("axes")[name]
    return axis and axis.pattern
  end,
})
local PROGRAM = {
  path = "^[^%c]+$", size = "^%d+$", mtime = "^%-?%d+$", build = "^[%x:adler ]+$",
}
-- Numbers of threads, by whatever name a program takes them.
local VARIABLES = setmetatable({}, {
  __index = function(_, name)
    if type(name) ~= "string" or #name > 64 then return nil end
    return (name:find("^[A-Z][A-Z0-9_]*_NUM_THREADS$") or config.counts[name]) and COUNT or nil
  end,
})

local M = { counts = VARIABLES }

-- Whether text is a stamp: what may be put into an admin comment as it is.
function M.is_stamp(text)
  return type(text) == "string" and #text <= MAX_STAMP
    and text:find("^advisor:{[ -~]*}$") ~= nil
end

-- Characters beyond ASCII that are only read: none that steer, hide or turn text around.
local READABLE = {
  "^\194[\160-\172\174-\191]$",
  "^[\195-\215][\128-\191]$",
  "^\226\128[\144-\167\176-\190]$",
  "^\226[\130-\191][\128-\191]$",
  "^[\225\227-\236][\128-\191][\128-\191]$",
}

-- The line as a terminal may have it; nil for what is no line.
local function line(text)
  if type(text) ~= "string" or #text > MAX_MESSAGE or text:find("[%z\1-\31\127]") then return nil end
  if not text:find("[\128-\255]") then return text end
  return (text:gsub("[\128-\255][\128-\191]*", function(char)
    for _, pattern in ipairs(READABLE) do
      if char:find(pattern) then return nil end
    end
    return "?"
  end))
end

local function checked(given, patterns, what, limit)
  if type(given) ~= "table" then return nil, "no " .. what end
  local result = {}
  for name, value in pairs(given) do
    local pattern = patterns[name]
    if not pattern then return nil, ("%s %q is not one the advisor writes"):format(what, tostring(name)) end
    if type(value) ~= "string" or #value > (limit or 64) or not value:find(pattern) then
      return nil, ("%s %s has a value that is not valid"):format(what, name)
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
  if data.program ~= nil then
    plan.program, problem = checked(data.program, PROGRAM, "fact of the program", 4000)
    if not plan.program then return nil, problem end
    for name in pairs(PROGRAM) do
      if not plan.program[name] then return nil, "the program lacks its " .. name end
    end
  end
  plan.changes = next(plan.options) ~= nil or next(plan.env) ~= nil
  local low, high = (plan.options["cpu-freq"] or "0-0"):match("(%d+)%-(%d+)")
  if #high > 9 or tonumber(low) > tonumber(high) or tonumber(high) > MAX_KHZ then
    return nil, "cpu-freq is not valid"
  end
  if data.stamp ~= nil then
    if not M.is_stamp(data.stamp) then return nil, "the stamp is malformed" end
    plan.stamp = data.stamp
  end
  if data.plan ~= nil then
    local steps = type(data.plan) == "string" and #data.plan <= MAX_STEPS and data.plan or ""
    if not steps:find("^1 " .. plan.decision .. " [ -~]+$") then return nil, "the plan for its steps is malformed" end
    plan.steps = steps
  end
  if data.to ~= nil and data.to ~= "tty" and data.to ~= "always" then
    return nil, "it does not say whom the message is for"
  end
  plan.always = data.to == "always"
  if data.message ~= nil and data.message ~= "" then
    plan.message = line(data.message)
    if not plan.message then return nil, "the message is not one printable line" end
  end
  return plan
end

-- A character in UTF-8; nil for half of a pair.
function M.utf8(code)
  local char, floor = string.char, math.floor
  if code >= 0xD800 and code < 0xE000 then return nil end
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
  local last, middle = 0x80 + code % 64, 0x80 + floor(code / 64) % 64
  if code < 0x10000 then return char(0xE0 + floor(code / 4096), middle, last) end
  return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, middle, last)
end

-- A flat object's inner part, of plain strings only, as a table; nil for anything else.
local function flat(inner)
  local result, at = {}, 1
  if inner ~= "" then inner = inner .. "," end
  while at <= #inner do
    local name, value, stop = inner:match('^"([%w_-]+)":"([^"\\]*)",()', at)
    if not name then return nil end
    result[name], at = value, stop
  end
  return result
end

-- The daemon's usual line, taken apart without reading JSON, which would cost as much as all
-- else in here; nil when anything in it is unusual, and then it is read as JSON.
local function usual(text)
  local rest, program = text:match('^(.*),"program":{([^{}]*)}}$')
  if rest then text, program = rest .. "}", flat(program) end
  if rest and not program then return nil end
  local steps
  if text:find('","plan":"', 1, true) then
    rest, steps = text:match('^(.*"),"plan":"([^"\\]*)"}$')
    if not rest then return nil end
    text = rest .. "}"
  end
  local decision, rewrite, env, message, to, stamp = text:match(
    '^{"v":1,"decision":"(%x+)","rewrite":{([^{}]*)},"env":{([^{}]*)},"message":"([^"]*)",'
      .. '"to":"(%l+)","stamp":"(advisor:.*)"}$')
  if not decision then return nil end
  rewrite, env = flat(rewrite), flat(env)
  local stamp, escaped = stamp:gsub('\\"', '"')
  local _, quotes = stamp:gsub('"', "")
  if not rewrite or not env or quotes > escaped or stamp:find("\\", 1, true) then return nil end
  if message:find("\\", 1, true) then
    if message:gsub("\\u%x%x%x%x", ""):find("\\", 1, true) then return nil end
    local whole = true
    message = message:gsub("\\u(%x%x%x%x)", function(digits)
      local char = M.utf8(tonumber(digits, 16))
      whole = whole and char ~= nil
      return char
    end)
    if not whole then return nil end
  end
  return {
    v = 1, decision = decision, rewrite = rewrite, env = env, message = message, to = to,
    stamp = stamp, program = program, plan = steps,
  }
end

function M.read(text)
  local data, problem = usual(text), nil
  if not data then data, problem = use("json").decode(text) end
  if type(data) ~= "table" then
    return nil, "the daemon's answer is not JSON: " .. tostring(problem), "garbage"
  end
  if type(data.error) == "string" then
    return nil, "the daemon says: " .. data.error:sub(1, 200), "error"
  end
  if data.v ~= 1 then return nil, "the daemon does not speak protocol version 1", "garbage" end
  local plan
  plan, problem = read(data)
  if plan then return plan end
  return nil, "the daemon's answer is not valid: " .. problem, "garbage"
end

return M
