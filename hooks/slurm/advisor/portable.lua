-- The few system calls the hooks need, by lua-posix: native.c where that is not to be had.
--
-- `require "posix"` costs 6 ms, and any `require` looks into the current folder first. Here
-- only the pieces used are opened, from the absolute folders of Lua's path: out of the one
-- library Debian ships, or out of a file for each piece. Raises an error naming the package.

local use = ...
local limits = use("config")
local MODE, EINTR, EAGAIN = 384, 4, 11 -- the mode is 0600
local PIECES = 5 -- of the wait for an answer
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
-- "closed" (hung up, or interrupted), "garbage" (no whole line) or "error" (no line to send).
-- The line may be a function that makes it: called once connected, while the daemon wakes up.
--
-- The kernel keeps the deadline: a quarter of it for connecting, a quarter for sending, half for
-- the answer. That half is waited for in pieces: where the whole host stands still, one of them
-- passes, and no daemon hangs. The daemon writes its line at once, so a piece of one is garbage,
-- and dripping bytes gain it nothing. `meanwhile` is called while the daemon thinks, and again as
-- long as it returns true (native.c: until the answer is there); what goes wrong in it is lost.
function M.exchange(path, line, deadline_s, no_answer, meanwhile)
  local socket, signal = posix("sys.socket"), posix("signal")
  if #path > limits.max_socket then return nil, "absent", "the socket's path is too long" end
  local fd, none = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0)
  if not fd then return nil, "absent", tostring(none) end

  local function bound(option, seconds)
    local whole = math.floor(seconds)
    local micros = math.max(1, math.floor((seconds - whole) * 1e6))
    assert(socket.setsockopt(fd, socket.SOL_SOCKET, option, whole, micros))
  end

  local function talk()
    bound(socket.SO_SNDTIMEO, deadline_s / 4)
    bound(socket.SO_RCVTIMEO, deadline_s / 2 / PIECES)
    local done, problem, code = socket.connect(fd, { family = socket.AF_UNIX, path = path })
    if not done then return nil, code == EAGAIN and "timeout" or "absent", tostring(problem) end
    if type(line) == "function" then
      done, line = pcall(line)
      if not done or not line then return nil, "error", tostring(line or "no line to send") end
    end
    done, problem, code = socket.send(fd, line)
    if done ~= #line then
      if done then -- a part: too late for the rest, but a peer that hung up differs from a slow one
        bound(socket.SO_SNDTIMEO, 0)
        done, problem, code = socket.send(fd, line:sub(done + 1))
      end
      return nil, (done or code == EAGAIN) and "timeout" or "closed", tostring(problem)
    end
    if no_answer then return "" end
    local ok, more = true, meanwhile ~= nil
    while ok and more do ok, more = pcall(meanwhile) end
    local answer
    for _ = 1, PIECES do
      answer, problem, code = socket.recv(fd, limits.max_answer)
      if answer or code ~= EAGAIN and code ~= EINTR then break end
    end
    if not answer and (code == EAGAIN or code == EINTR) then return nil, "timeout", "no answer in time" end
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
local function read(path, limit)
  local stat = posix("sys.stat")
  local found = path ~= "" and stat.stat(path)
  local file = found and stat.S_ISREG(found.st_mode) ~= 0 and io.open(path, "rb")
  if not file then return nil end
  local text = file:read(limit) or ""
  local more = file:read(1) ~= nil
  file:close()
  return text, more
end

-- Whether a variable is sent although it is not named: by its beginning or as a number of threads.
local function is_sent(name, prefixes)
  if name:find("_NUM_THREADS$") then return true end
  for prefix in prefixes:gmatch("%S+") do
    if name:sub(1, #prefix) == prefix then
      return name ~= "SLURM_JWT" and name:sub(1, 11) ~= "SLURM_SACK_" -- those are keys
    end
  end
end

-- The line that asks, and the variables in it: `head` is the object as far as it is known already,
-- without its end. Of the script and the choices file come the contents (of a script the first
-- 128 KB; null when it is no regular file); of the variables in `names` those that are set, whole,
-- and of those that begin like one of `prefixes` or end in _NUM_THREADS the first 256 bytes.
function M.request(head, script, choices, names, prefixes)
  local quote = use("json").quote
  local cwd = posix("unistd").getcwd() or ""
  if #script >= 4000 then script = "" end
  if script ~= "" and script:sub(1, 1) ~= "/" then script = cwd .. "/" .. script end
  local text, more = read(script, limits.max_script)
  local chosen, too_long = read(choices, limits.max_choices)
  local words = {}
  names = " " .. names .. " "
  for name, value in pairs(posix("stdlib").getenv()) do
    local named = #value <= limits.max_variable and names:find(" " .. name .. " ", 1, true)
    if named or is_sent(name, prefixes) then
      words[#words + 1] = quote(name) .. ":" .. quote(named and value or value:sub(1, limits.cut))
    end
  end
  local env = "{" .. table.concat(words, ",") .. "}"
  return table.concat({
    head, ',"script":', text and quote(text) or "null", ',"truncated":', tostring(more or false),
    ',"script_path":', quote(script), ',"env":', env, ',"choices":',
    quote(not too_long and chosen or ""), ',"cwd":', quote(cwd), "}\n",
  }), env
end

-- The checksum of a text in hexadecimal, as zlib's.
function M.adler32(text)
  local a, b = 1, 0
  for from = 1, #text, 2048 do
    for _, byte in ipairs({ text:byte(from, from + 2047) }) do
      a = a + byte
      b = b + a
    end
    a, b = a % 65521, b % 65521
  end
  return ("%04x%04x"):format(b, a)
end

-- Size, time of change and whether it may be run; nil for what is no regular file.
function M.status(path)
  local stat, unistd = posix("sys.stat"), posix("unistd")
  local found = stat.stat(path)
  if not found or stat.S_ISREG(found.st_mode) == 0 then return nil end
  return found.st_size, found.st_mtime, unistd.access(path, "x") == 0
end

-- Who runs this.
function M.uid() return posix("unistd").geteuid() end

-- Whether somebody reads along at a terminal.
function M.at_terminal() return posix("unistd").isatty(2) == 1 end

function M.setenv(name, value) return posix("stdlib").setenv(name, value) ~= nil end

-- The circuit breaker: after a daemon that hung, nobody waits for a while. Each sbatch is a
-- process of its own, so the state is a file of the user's: its time says when the daemon hung.
-- It closes itself; deleting the file closes it at once. A file of somebody else's, or a link,
-- is never believed and never written through.
local function breaker()
  local stat, uid = posix("sys.stat"), posix("unistd").geteuid()
  local runtime = os.getenv("XDG_RUNTIME_DIR") or ""
  local folder = runtime:sub(1, 1) == "/" and stat.lstat(runtime)
  local ours = folder and folder.st_uid == uid and stat.S_ISDIR(folder.st_mode) ~= 0
  local path = ours and runtime .. "/advisor-breaker" or ("/tmp/advisor-breaker-%d"):format(uid)
  local found = stat.lstat(path)
  return path, found and found.st_uid == uid and found
end

-- Whether the daemon hung less than `retry` seconds ago.
function M.hung(retry)
  local _, found = breaker()
  if not found or posix("sys.stat").S_ISREG(found.st_mode) == 0 then return false end
  local age = os.time() - found.st_mtime
  return age >= -1 and age < retry
end

-- Notes that it hung just now.
function M.trip()
  local fcntl, unistd = posix("fcntl"), posix("unistd")
  local path, found = breaker()
  if found then unistd.unlink(path) end
  local fd = fcntl.open(path, fcntl.O_WRONLY + fcntl.O_CREAT + fcntl.O_EXCL, MODE)
  if fd then unistd.close(fd) end
end

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
