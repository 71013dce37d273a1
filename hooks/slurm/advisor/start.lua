-- Loads one of the advisor's modules and what it uses, out of one folder and nowhere else.
--
-- No `require`: Lua's default path begins with the current folder, where anybody may have put
-- a file.

local home, name = ...
local loaded = { home = home }

local function use(module)
  if loaded[module] == nil then
    loaded[module] = assert(loadfile(home .. "/" .. module .. ".lua"))(use)
  end
  return loaded[module]
end

return use(name)
