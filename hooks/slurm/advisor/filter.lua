-- cli_filter: asks the daemon about one job and turns its answer into options.
--
-- Runs as the user, once for each submission. Nothing here may keep a job from being submitted:
-- whatever is not a whole, checked plan leaves the options as they are.

local use = ...
local config, system = use("config"), use("system")

local KINDS = { sbatch = true, srun = true, salloc = true }
local OURS = {
  "ADVISOR_STAMP", "ADVISOR_DECISION", "ADVISOR_PLAN", "SLURM_ADVISOR_STAMP", "SLURM_ADVISOR_PLAN",
}
local SET = { "ADVISOR_SET", "SLURM_ADVISOR_SET" }
local AS_WRITTEN = "a step runs as written"
local NO_FREQUENCY = "4294967294" -- Slurm's "not set"; it takes no text for that

local M = {}
local pending -- the decision whose job id the daemon does not know yet

-- Slurm's JSON of what the user set, mended: 22.05 leaves control characters in it as they are.
local function explicit_options(options)
  local text = slurm.json_cli_options(options)
  if type(text) ~= "string" or not text:find("^%s*{") then
    error("Slurm does not say what the user asked for", 0)
  end
  if text:find("^%s*{[\r\n]") then return (text:gsub("%c", " ")) end -- over several lines
  return (text:gsub("%c", function(c) return ("\\u%04x"):format(c:byte()) end))
end

-- The line that asks, and the variables in it as JSON.
local function request(options, explicit, het, found)
  local root = os.getenv("XDG_CONFIG_HOME") or ""
  if root:sub(1, 1) ~= "/" then root = (os.getenv("HOME") or "/nonexistent") .. "/.config" end
  local head = ('{"v":1,"op":"decide","scheduler":"slurm","hook":"cli_filter","cluster":"%s",'
    .. '"type":"%s","het":%s,"plan":1,"argv":'):format(config.cluster, options.type, tostring(het))
    .. (explicit:match('"argv":(%[.*%])%s*}%s*$') or "[]") .. ',"options":' .. explicit
  if found then
    local words = {}
    for name, value in pairs(found) do words[#words + 1] = ('"%s":'):format(name) .. use("json").quote(value) end
    head = head .. ',"program":{' .. table.concat(words, ",") .. "}"
  end
  local script = options.type == "sbatch" and (options.argv or {})[1] or ""
  return system.request(
    head, script, root .. "/advisor/choices.json", config.names, config.prefixes)
end

-- The plan, or nil, why there is none, and whether that is worth no line in the log. `found`: the
-- job's program as it is, where it is not the one that was measured.
local function ask(options, explicit, het, found)
  if system.hung(config.retry) then
    return nil, "the daemon hung a moment ago and is not asked", true
  end
  local variables
  local function line() -- made while the daemon wakes up
    explicit = explicit or explicit_options(options)
    local text
    text, variables = request(options, explicit, het, found)
    return text
  end
  local needed = { "answer", "rewrite", "json", "understood", "limits", "inventory", "steps" }
  local function meanwhile() -- loads what the answer needs, while the daemon thinks
    use(table.remove(needed, 1))
    return needed[1] ~= nil
  end
  local text, word, problem = system.exchange(config.socket, line, config.deadline, false, meanwhile)
  local plan
  if text then
    plan, problem, word = use("answer").read(text)
  elseif word == "absent" then
    problem = ("%s: %s (is advisor serve running?)"):format(config.socket, problem)
  end
  if word == "timeout" or word == "garbage" then
    system.trip()
    problem = ("%s (not asked again for %d s)"):format(problem, config.retry)
  end
  if not plan then return nil, problem end
  local other = plan.program and not found and use("program").differs(plan.program)
  if other then
    other.instead = plan.decision
    return ask(options, explicit, het, other)
  end
  plan.wanted = use("rewrite").wanted_by(options, explicit)
  plan.quiet = explicit:find('"quiet":', 1, true)
  if not plan.changes then return plan end
  if not het and use("rewrite").is_het(options, explicit) then return ask(options, explicit, true, found) end -- one component is no base
  local json = use("json")
  local asked, set = json.flat(explicit), json.flat(variables)
  if not asked or not set then return nil, "what Slurm says the user asked for cannot be read" end
  problem = use("understood").refused(plan, asked, set, options.type)
    or use("limits").refused(plan, plan.wanted, use("inventory"))
    or use("limits").beyond(plan, plan.wanted, set, use("inventory"), use("steps"))
  if problem then return nil, problem end
  return plan
end

local function is_off()
  return config.off:find(" " .. (os.getenv("ADVISOR") or ""):lower() .. " ", 1, true) ~= nil
end

-- Takes out of the environment what the advisor set for the job that this one is submitted from;
-- what its user has changed since stays.
local function forget_what_was_set()
  for _, mine in ipairs(SET) do
    local text = os.getenv(mine)
    if text then
      use("rewrite").restore(text)
      system.setenv(mine, nil)
    end
  end
end

function M.pre_submit(options, offset)
  if offset > 0 or not KINDS[options.type] then return end
  pending = nil
  local explicit = options.type == "srun" and explicit_options(options) or nil
  if explicit and explicit:find('"jobid":', 1, true) then return end
  -- What is there already is of the job this one is submitted from, or forged.
  for _, name in ipairs(OURS) do
    if os.getenv(name) then system.setenv(name, nil) end
  end
  forget_what_was_set()
  if is_off() then return end
  local plan, problem, quietly = ask(options, explicit, false)
  if not plan then return use("log")(problem, quietly) end
  use("rewrite").assign(plan, options, plan.wanted.export or "ALL")
  if options.type ~= "sbatch" then pending = plan.decision end
  if not plan.message or plan.quiet then return end
  if plan.always or system.at_terminal() then io.stderr:write(plan.message, "\n") end
end

-- A step inside a step gets nothing, and nothing of what the outer one was given. Its srun has read
-- the cap from its environment already.
local function forget_in_step(options)
  local text = os.getenv("ADVISOR_SET")
  if not text then return end
  local cap = text:match("SLURM_CPU_FREQ_REQ=([%d-]+)")
  forget_what_was_set()
  if cap and options["cpu-freq"] == cap then
    options["cpu-freq"] = os.getenv("SLURM_CPU_FREQ_REQ") or NO_FREQUENCY
  end
end

-- srun inside a job that carries a plan for its steps.
function M.step(options, offset)
  if os.getenv("SLURM_STEP_ID") or os.getenv("SLURM_STEPID") then return forget_in_step(options) end
  if offset > 0 or is_off() then return end
  local plan = os.getenv("ADVISOR_PLAN") or os.getenv("SLURM_ADVISOR_PLAN")
  local why, fault = use("step").advise(plan, options, explicit_options)
  if why then use("log")(why, not fault, AS_WRITTEN) end
end

-- Tells the daemon the job's id: of srun and salloc, job_submit sees no environment to stamp by.
function M.post_submit(offset, job_id)
  if not pending or offset > 0 then return end
  local line = ('{"v":1,"op":"submitted","decision":"%s","job":"%.0f"}\n'):format(pending, job_id)
  pending = nil
  system.exchange(config.socket, line, config.deadline, true)
end

-- Whatever goes wrong in here is a line in the log and nothing else.
for name, inner in pairs(M) do
  M[name] = function(...)
    local ok, problem = pcall(inner, ...)
    if not ok then use("log")(problem, false, name == "step" and AS_WRITTEN or nil) end
  end
end

return M
