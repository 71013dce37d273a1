-- The few system calls the hooks need, by lua-posix: native.c where that is not to be had.
--
-- `require "posix"` costs 6 ms, and any `require` looks into the current folder first. Here
-- only the pieces used are opened, from the absolute folders of Lua's path: out of the one
-- library Debian ships, or out of a file for each piece. Raises an error naming the package.

local use = ...
local MAX_ANSWER, MAX_PATH, MODE = 16384, 107, 384 -- the mode is 0600
local EAGAIN = 11
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

local function posix(name)
  local piece = pieces[name] or open(name)
  pieces[name] = piece
  return piece
end

local M = {}

-- Sends a line without its newline and returns the answer without its own; or nil, what went
-- wrong in a word and in words: "absent" (nobody listens: costs microseconds), "timeout",
-- "closed" (hung up, or interrupted) or "garbage" (no whole line).
--
-- The kernel keeps the deadline: a quarter of it for connecting, a quarter for sending, half for
-- the answer, each one call. The daemon writes its line at once, so a piece of one is garbage,
-- and dripping bytes gain it nothing.
function M.exchange(path, line, deadline_s, no_answer)
  local socket, signal = posix("sys.socket"), posix("signal")
  if #path > MAX_PATH then return nil, "absent", "the socket's path is too long" end
  local fd, none = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0)
  if not fd then return nil, "absent", tostring(none) end

  local function bound(option, seconds)
    local whole = math.floor(seconds)
    local micros = math.max(1, math.floor((seconds - whole) * 1e6))
    assert(socket.setsockopt(fd, socket.SOL_SOCKET, option, whole, micros))
  end

  local function talk()
    bound(socket.SO_SNDTIMEO, deadline_s / 4)
    bound(socket.SO_RCVTIMEO, deadline_s / 2)
    local done, problem, code = socket.connect(fd, { family = socket.AF_UNIX, path = path })
    if not done then return nil, code == EAGAIN and "timeout" or "absent", tostring(problem) end
    done, problem, code = socket.send(fd, line)
    if done ~= #line then
      return nil, (done or code == EAGAIN) and "timeout" or "closed", tostring(problem)
    end
    if no_answer then return "" end
    local answer
    answer, problem, code = socket.recv(fd, MAX_ANSWER)
    if not answer and code == EAGAIN then return nil, "timeout", "no answer in time" end
    if not answer or answer == "" then return nil, "closed", "the daemon hung up" end
    if not answer:find("\n", 1, true) then return nil, "garbage", "an answer that is no line" end
    return answer:match("^[^\n]*")
  end

  -- A daemon that dies while it is written to must not kill sbatch.
  local before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
  local ok, answer, word, text = pcall(talk)
  signal.signal(signal.SIGPIPE, before)
  posix("unistd").close(fd)
  if not ok then return nil, "closed", tostring(answer) end
  return answer, word, text
end

-- The first bytes of a regular file and whether there are more, else nil: a FIFO would wait.
function M.read(path, limit)
  local stat = posix("sys.stat")
  local found = stat.stat(path)
  local file = found and stat.S_ISREG(found.st_mode) ~= 0 and io.open(path, "rb")
  if not file then return nil end
  local text = file:read(limit) or ""
  local more = file:read(1) ~= nil
  file:close()
  return text, more
end

function M.setenv(name, value) return posix("stdlib").setenv(name, value) ~= nil end

-- Kind ("file", "folder", "other"), owner and time in seconds of what is there, no link
-- followed; else nil.
function M.look(path)
  local stat = posix("sys.stat")
  local found = stat.lstat(path)
  if not found then return nil end
  local kind = stat.S_ISREG(found.st_mode) ~= 0 and "file"
    or stat.S_ISDIR(found.st_mode) ~= 0 and "folder" or "other"
  return kind, found.st_uid, found.st_mtime
end

-- Makes a new empty file of the user's, never through a link.
function M.create(path)
  local fcntl = posix("fcntl")
  local fd = fcntl.open(path, fcntl.O_WRONLY + fcntl.O_CREAT + fcntl.O_EXCL, MODE)
  if fd then posix("unistd").close(fd) end
  return fd ~= nil
end

function M.remove(path) return posix("unistd").unlink(path) ~= nil end

function M.uid() return posix("unistd").geteuid() end

function M.cwd() return posix("unistd").getcwd() or "" end

-- Sends one message; waits for nobody for longer than 20 ms.
function M.datagram(path, text)
  local socket = posix("sys.socket")
  local fd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM, 0)
  if not fd then return end
  socket.setsockopt(fd, socket.SOL_SOCKET, socket.SO_SNDTIMEO, 0, 20000)
  if socket.connect(fd, { family = socket.AF_UNIX, path = path }) then socket.send(fd, text) end
  posix("unistd").close(fd)
end

return M
