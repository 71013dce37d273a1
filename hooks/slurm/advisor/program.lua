-- Whether the file a job runs is the program that was measured. Runs as the user.
--
-- differs(wanted) returns nil when it is, and when nothing can be known: no such file, or not to
-- be read. Else it returns what was found: path, size, mtime and build, as text.
--   wanted.path   absolute, "~/...", relative to this folder, or a name to search for in PATH
--   wanted.size, wanted.mtime   of the file when it was seen last: then it is not even opened
--   wanted.build  every build that counts, separated by blanks
-- advisor/core/program.py says what a build is and reads them in the same way.

local use = ...

local HEAD, MAX_NOTES, MAX_HEADERS, PT_NOTE, BUILD_ID = 65536, 65536, 64, 4, 3

local M = {}

-- The little-endian number of `count` bytes behind offset `at`; an error beyond the end.
local function number(text, at, count)
  local value = 0
  for i = at + count, at + 1, -1 do value = value * 256 + (text:byte(i) or error("short", 0)) end
  return value
end

local function hex(text)
  return (text:gsub(".", function(char) return ("%02x"):format(char:byte()) end))
end

local function build_id(notes)
  local at = 0
  while at + 12 <= #notes do
    local name, size, kind = number(notes, at, 4), number(notes, at + 4, 4), number(notes, at + 8, 4)
    local start = at + 12 + math.ceil(name / 4) * 4
    if kind == BUILD_ID and name == 4 and notes:sub(at + 13, at + 16) == "GNU\0" then
      local found = notes:sub(start + 1, start + size)
      return #found == size and size >= 4 and size <= 64 and hex(found) or nil
    end
    at = start + math.ceil(size / 4) * 4
  end
end

-- The build id of a 64-bit little-endian ELF file.
local function elf(file, head)
  if head:sub(1, 6) ~= "\127ELF\2\1" then return nil end
  local start, length, count = number(head, 32, 8), number(head, 54, 2), number(head, 56, 2)
  for i = 0, math.min(count, MAX_HEADERS) - 1 do
    local at = start + i * length
    if number(head, at, 4) == PT_NOTE then
      local offset, size = number(head, at + 8, 8), number(head, at + 32, 8)
      local there = offset < 2 ^ 52 and file:seek("set", offset)
      local found = there and build_id(file:read(math.min(size, MAX_NOTES)) or "")
      if found then return found end
    end
  end
end

-- The build of a file of so many bytes; nil when it cannot be read.
function M.build(path, size)
  local file = io.open(path, "rb")
  if not file then return nil end
  local head = file:read(HEAD) or ""
  local ok, found = pcall(elf, file, head)
  file:close()
  return ok and found or ("adler:%s:%.0f"):format(use("system").adler32(head), size)
end

-- The file's path, size and time of change.
local function find(path)
  local status = use("system").status
  if path:sub(1, 2) == "~/" then path = (os.getenv("HOME") or "") .. path:sub(2) end
  if path:find("/", 1, true) then return path, status(path) end
  for folder in ((os.getenv("PATH") or "") .. ":"):gmatch("([^:]*):") do
    local full = (folder == "" and "." or folder) .. "/" .. path
    local size, mtime, executable = status(full)
    if executable then return full, size, mtime end
  end
end

-- The build of what a command's first word starts; nil when it cannot be read.
function M.build_of(word)
  local path, size = find(word)
  return size and M.build(path, size)
end

function M.differs(wanted)
  local path, size, mtime = find(wanted.path)
  if not size then return nil end
  size, mtime = ("%.0f"):format(size), ("%.0f"):format(mtime)
  if size == wanted.size and mtime == wanted.mtime then return nil end
  local build = M.build(path, size)
  if not build or (" " .. wanted.build .. " "):find(" " .. build .. " ", 1, true) then return nil end
  return { path = path, size = size, mtime = mtime, build = build }
end

return M
