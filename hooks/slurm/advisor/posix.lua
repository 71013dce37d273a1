-- lua-posix, piece by piece: `posix("sys.socket")` is the table of posix.sys.socket.
--
-- `require "posix"` costs 6 ms, and any `require` looks into the current folder first. Here
-- only what is used is opened, from the absolute folders of Lua's path: out of the one library
-- Debian ships, or out of a file for each piece. Raises an error naming the package.

local use = ...
local pieces = {}

local function find(stem)
  for template in (";" .. package.cpath):gmatch(";(/[^;]*%?[^;]*)") do
    local path = template:gsub("%?", stem)
    local file = io.open(path, "rb")
    if file then
      file:close()
      return path
    end
  end
end

local function open(name)
  local symbol = "luaopen_posix_" .. name:gsub("%.", "_")
  local known = use("config").posix[_VERSION] -- where it was at install
  local piece = known and package.loadlib(known, symbol)
  if piece then return piece("posix." .. name) end
  local path = find("posix") or find("posix/" .. name:gsub("%.", "/"))
  if not path then error("lua-posix is not installed for " .. _VERSION, 0) end
  local problem
  piece, problem = package.loadlib(path, symbol)
  if not piece then error("lua-posix: " .. tostring(problem), 0) end
  return piece("posix." .. name)
end

return function(name)
  local piece = pieces[name] or open(name)
  pieces[name] = piece
  return piece
end
