-- JSON, as much as one line each way needs.
--
-- quote(text) writes any bytes: control characters escaped, all else as it is (the daemon
-- replaces what is not UTF-8). decode(text) reads one value strictly and returns it, or nil and
-- what is wrong; null becomes the `null` of this table. flat(text) takes an object of texts apart
-- without reading them: nobody pays for a whole decode to look at a few options.

local use = ...
local M = { null = setmetatable({}, { __tostring = function() return "null" end }) }

local MAX_DEPTH = 8
local escapes = setmetatable({ ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\t"] = "\\t" }, {
  __index = function(_, char) return ("\\u%04x"):format(char:byte()) end,
})
local plain = {
  ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t",
}

function M.quote(text)
  return '"' .. text:gsub('[%c"\\]', escapes) .. '"'
end

-- Text between quotes that holds a backslash.
local function unescape(text)
  local parts, at = {}, 1
  while true do
    local back = text:find("\\", at, true)
    parts[#parts + 1] = text:sub(at, (back or 0) - 1)
    if not back then return table.concat(parts) end
    local char = text:sub(back + 1, back + 1)
    if char == "u" then
      local code = tonumber(text:match("^%x%x%x%x", back + 2) or error("bad \\u", 0), 16)
      at = back + 6
      local low = text:match("^\\u([dD][c-fC-F]%x%x)", at)
      if code >= 0xD800 and code < 0xDC00 and low then
        code, at = 0x10000 + (code - 0xD800) * 0x400 + tonumber(low, 16) - 0xDC00, at + 6
      end
      parts[#parts + 1] = use("answer").utf8(code) or "\239\191\189" -- half a pair
    else
      parts[#parts + 1], at = plain[char] or error("bad escape", 0), back + 2
    end
  end
end

local words = { ["true"] = true, ["false"] = false, null = M.null }
local value

local function string_at(text, at)
  local from = at + 1
  while true do
    local stop = text:find('["\\%z\1-\31]', from) or error("no end of string", 0)
    local char = text:sub(stop, stop)
    if char == '"' then
      local inner = text:sub(at + 1, stop - 1)
      return inner:find("\\", 1, true) and unescape(inner) or inner, stop + 1
    elseif char ~= "\\" then
      error("control character in a string", 0)
    end
    from = stop + 2
  end
end

local function list_at(text, at, depth, close)
  local result, count = {}, 0
  at = text:match("^%s*()", at + 1)
  if text:sub(at, at) == close then return result, at + 1 end
  while true do
    local key, comma
    if close == "}" then
      if text:sub(at, at) ~= '"' then error("no key", 0) end
      key, at = string_at(text, at)
      at = text:match("^%s*:%s*()", at) or error("no colon", 0)
    else
      count = count + 1
      key = count
    end
    result[key], at = value(text, at, depth + 1)
    comma, at = text:match("^%s*([,%]}])%s*()", at)
    if comma == close then return result, at end
    if comma ~= "," then error("no comma", 0) end
  end
end

function value(text, at, depth)
  local char = text:sub(at, at)
  if char == '"' then return string_at(text, at) end
  if depth > MAX_DEPTH then error("too deep", 0) end
  if char == "{" then return list_at(text, at, depth, "}") end
  if char == "[" then return list_at(text, at, depth, "]") end
  local word, stop = text:match("^(%a+)()", at)
  if word then
    if words[word] == nil then error("no such word", 0) end
    return words[word], stop
  end
  word, stop = text:match("^(%-?%d[%d.eE+-]*)()", at)
  return tonumber(word or "") or error("no value", 0), stop
end

function M.decode(text)
  local ok, result, at = pcall(function()
    local found, stop = value(text, text:match("^%s*()"), 1)
    return found, text:match("^%s*()", stop)
  end)
  if not ok then return nil, tostring(result) end
  if at <= #text then return nil, "more after the end" end
  return result
end

-- The members of an object whose values are texts, still escaped, or plain words (""), up to the
-- list `argv`, which Slurm puts last; nil for any other object.
function M.flat(text)
  local result, at = {}, text:match("^%s*{%s*()")
  while at do
    local name, from = text:match('^"([^"\\]*)"%s*:%s*()', at)
    if not name then return text:find("^}%s*$", at) and next(result) == nil and result or nil end
    local char, stop = text:sub(from, from), from
    if char == '"' then
      repeat
        stop = text:find('["\\]', stop + 1)
        local escaped = stop and text:sub(stop, stop) == "\\"
        if escaped then stop = stop + 1 end
      until not escaped
      if not stop then return nil end
      result[name], stop = text:sub(from + 1, stop - 1), stop + 1
    elseif char == "[" then
      return name == "argv" and text:find("%]%s*}%s*$", from) and result or nil
    else
      stop = text:match("^[%w.+-]+()", from)
      if not stop then return nil end
      result[name] = ""
    end
    at = text:match("^%s*,%s*()", stop)
    if not at then return text:find("^%s*}%s*$", stop) and result or nil end
  end
end

return M
