package yaml

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

// synonym maps words of other schedulers and tools to equivalent lines. In the lines, VALUE stands
// for the written value, LIST for the value as a list, COMMAND for the value as one line, PROGRAM
// for its first word, SECONDS, MINUTES and DAYS for a number of those, and MORE for the number
// plus 1.
type synonym struct{ words, lines string }

const runsCommand = `playbook: [{call: shell_run, with: {command: COMMAND}}], and under its agent grants: {commands: [{argv: [PROGRAM]}]}`

// timings lists the words for triggers of a job. Users write them in agents, too.
var timings = []synonym{
	{"cron crontab expression cronexpression schedules oncalendar on trigger triggers", `schedule: WHEN`},
	{"interval frequency repeat repeat_every period onunitactivesec startinterval", `every: VALUE`},
	{"startcalendarinterval", `schedule: daily at 08:00`},
	{"date datetime once run_at start_at start_time next_run", `at: 2026-12-01T08:00:00+01:00`},
	{"persistent catchup catch_up catchup_runs misfire misfire_policy", `on_miss: run_once`},
}

// synonyms lists words of cron, systemd, Dagu, GitHub Actions, Kubernetes and other tools, by the
// path of the mapping that contains them. Case, - and _ do not matter. A word with [] applies to a
// list.
var synonyms = map[string][]synonym{
	"": {
		{"notification notifier notifiers channels alerts alerting", `notifications: [{name: ops, kind: url, url: secret:ops}]`},
		{"job tasks task crons workflows dags pipelines", `jobs: [{name: NAME, agent: AGENT, schedule: daily at 08:00, prompt: TEXT}]`},
		{"schedule", `jobs: [{name: NAME, agent: AGENT, schedule: VALUE, prompt: TEXT}]`},
		{"agent workers worker bots", `agents: [{name: NAME}]`},
		{"model llm llms provider providers ai", `models: [{name: main, provider: anthropic, model: claude-sonnet-5, api_key: secret:anthropic}]`},
		{"api_key apikey key token", `models: [{name: main, provider: anthropic, model: claude-sonnet-5, api_key: secret:anthropic}]`},
		{"mcp_servers mcpservers servers", `mcp: [{name: NAME, argv: [PROGRAM]}]`},
		{"tz time_zone", `timezone: VALUE`},
		{"state state_dir data data_dir datadir dir workdir", `home: VALUE`},
		{"includes import imports files", `include: [jobs/*.yaml]`},
		{"default", `defaults: {timezone: Europe/Berlin}`},
		{"logging loglevel log_level", `log: {level: info}`},
		{"server http web ui api port listen", `dashboard: {listen: 127.0.0.1:7311}`},
		{"secrets secret", `rouse secrets set NAME, and use it as secret:NAME`},
		{"env environment variables vars", `${NAME} where a value of the environment is needed`},
		{"budget cost max_cost", `limits: {cost_usd_per_day: 5}`},
		{"heartbeat healthcheck healthchecks ping", `heartbeat_url: secret:heartbeat`},
		{"otel opentelemetry tracing metrics", `telemetry: (see rouse explain telemetry)`},
		{"concurrency max_concurrent max_parallel parallelism", `limits: {runs: 4}`},
	},
	"jobs[]": append([]synonym{
		{"timeout time_limit timelimit max_runtime maxruntime max_time runtime_limit runtimemaxsec timeoutstartsec timeout_sec timeout_seconds activedeadlineseconds deadline", `bounds: {wall: SECONDS}`},
		{"timeout_minutes", `bounds: {wall: MINUTES}`},
		{"command cmd commands script scripts run exec execstart shell bash args program entrypoint", runsCommand},
		{"retries retry_policy max_retries maxretries backofflimit attempts restart restartpolicy retry_count", `retry: {attempts: MORE}`},
		{"backoff retry_delay retry_interval restartsec", `retry: {attempts: 3, backoff: SECONDS}`},
		{"tz time_zone", `timezone: VALUE`},
		{"disabled suspend suspended paused inactive disable", `enabled: false`},
		{"active enable", `enabled: VALUE`},
		{"env environment variables vars", `command: env NAME=TEXT PROGRAM, in the call of shell_run; or executor: {env: VALUE}`},
		{"task message goal query question ask instruction instructions text content system", `prompt: VALUE`},
		{"id title label job", `name: VALUE`},
		{"description desc comment notes summary", `# VALUE`},
		{"depends depends_on needs requires follows upstream run_after", `after: LIST`},
		{"concurrency concurrency_policy max_active_runs max_instances singleton no_overlap allow_overlap", `overlap: skip`},
		{"if condition conditions precondition preconditions only_if unless skip_if", `when: [{that: EXPRESSION}]`},
		{"starting_deadline_seconds", `start_deadline: SECONDS`},
		{"randomized_delay_sec random_delay randomdelay splay delay", `jitter: SECONDS`},
		{"onbootsec onstartupsec run_at_load on_start at_start run_at_startup startup", `run_on_start: true`},
		{"channel channels notifications alert alerts", `notify: {channels: LIST}`},
		{"mailto mail_on email on_failure on_error onfailure notify_on handler_on handlers", `notify: {on: [failure], channels: [CHANNEL]}`},
		{"file files folder dir directory path paths watch_path inbox", `watch: {path: VALUE}`},
		{"hook url route endpoint", `webhook: {path: /hooks/NAME, secret: secret:NAME}`},
		{"max_steps max_turns turns maxturns iterations max_iterations", `bounds: {steps: VALUE}`},
		{"cost max_cost cost_usd max_cost_usd", `bounds: {cost_usd: VALUE}`},
		{"max_tokens", `bounds: {tokens: VALUE}`},
		{"cost_usd_per_day cost_per_day daily_budget", `budget: {cost_usd_per_day: VALUE}`},
		{"history retention keep_days hist_retention_days ttl ttl_seconds_after_finished log_retention", `keep: DAYS`},
		{"workdir working_dir working_directory cwd chdir", `workdir: VALUE, under the agent of the job`},
		{"tools permissions allow grants mcp", `tools, grants and mcp under the agent of the job`},
		{"user run_as", `the user that starts rouse serve: all jobs run as that user`},
		{"calls actions steps[]", `playbook: [{call: shell_run, with: {command: './backup.sh'}}], with a call for each step`},
		{"parameters params inputs arguments", `input: VALUE for a skill; watch: {parameters: {NAME: VALUE}} for the files of a watch`},
		{"queue group pool", `agent: AGENT: the runs of one agent queue for it (limits.runs_per_agent)`},
	}, timings...),
	"agents[]": append([]synonym{
		{"system system_prompt prompt role persona description goal backstory", `instructions: VALUE`},
		{"cwd dir folder path directory working_dir working_directory workspace root", `workdir: VALUE`},
		{"permissions allow read write commands network secrets", `grants: {read: [FOLDER], commands: [{argv: [PROGRAM, '*']}], network: [{host: HOST}]}`},
		{"mcp_servers mcpservers", `mcp: [NAME], with the server itself at the top: mcp: [{name: NAME, argv: [PROGRAM]}]`},
		{"tool allowed_tools", `tools: {allow: [NAME]}`},
		{"max_steps max_turns turns maxturns iterations max_iterations", `bounds: {steps: VALUE}`},
		{"timeout time_limit max_runtime max_time timeout_seconds", `bounds: {wall: SECONDS}`},
		{"cost max_cost max_cost_usd", `bounds: {cost_usd: VALUE}`},
		{"llm model_name", `model: NAME, with models: [{name: NAME, provider: anthropic, model: VALUE}] at the top`},
		{"provider api_key temperature max_tokens base_url", `model: NAME, with models: [{name: NAME, provider: anthropic, model: claude-sonnet-5, api_key: secret:anthropic}] at the top`},
		{"command cmd exec program runner cli", `executor: {argv: VALUE}`},
		{"db memory", `database: {enabled: true}`},
		{"id title label", `name: VALUE`},
		{"disabled suspend suspended paused", `enabled: false`},
		{"notify channel channels", `notify: {channels: LIST}, in its jobs`},
		{"schedule every at watch webhook", `KEY: VALUE in a job: jobs: [{name: NAME, agent: AGENT, KEY: VALUE, prompt: TEXT}]`},
	}, inJob(timings)...),
	"models[]": {
		{"key token apikey api_token secret", `api_key: secret:NAME`},
		{"url endpoint base api_base host address api_url openai_api_base", `base_url: VALUE`},
		{"id model_name modelname deployment engine", `model: VALUE`},
		{"type kind vendor backend driver", `provider: VALUE`},
		{"max_tokens max_output_tokens max_completion_tokens", `max_output: VALUE`},
		{"context context_length num_ctx max_context n_ctx", `context_window: VALUE`},
		{"cost pricing prices", `price: {input: 3, output: 15}`},
		{"request_timeout timeout_seconds", `timeout: SECONDS`},
	},
	"notifications[]": {
		{"type service provider", `kind: VALUE`},
		{"webhook webhook_url address endpoint server to uri", `url: secret:NAME`},
		{"topic", `kind: url and url: ntfy://ntfy.sh/VALUE`},
		{"token bot_token chat chat_id chatid", `kind: url and url: telegram://TOKEN@telegram?chats=CHAT`},
		{"channel", `kind: url and url: slack://hook:TOKENS@webhook`},
		{"email mail smtp from", `kind: url and url: smtp://USER:PASSWORD@HOST:587/?from=ADDRESS&to=ADDRESS`},
		{"on events when", `notify: {on: [failure]}, in a job or under defaults`},
		{"id title label", `name: VALUE`},
	},
	"mcp[]": {
		{"command cmd args exec", `argv: [PROGRAM, ARGUMENT]`},
		{"endpoint address uri server", `url: VALUE`},
		{"environment", `env: {NAME: secret:NAME}`},
		{"type transport", `argv for a program, or url for an address`},
		{"auth authorization token api_key", `headers: {Authorization: 'Bearer ${secret:NAME}'}`},
		{"allowed_tools", `tools: {allow: [NAME]}`},
		{"id", `name: VALUE`},
	},
	"jobs[].watch": {
		{"dir folder directory paths", `path: VALUE`},
		{"pattern patterns glob globs filter match matches files extensions ext name", `include: LIST`},
		{"ignore", `exclude: LIST`},
		{"recurse subfolders depth", `recursive: true`},
		{"debounce settle delay stable stability quiet_period", `responsiveness: patient`},
		{"interval poll polling", `responsiveness: balanced; files are noticed without polling`},
		{"move archive done move_to on_done then after", `on_success: {move: VALUE}`},
		{"delete remove", `on_success: delete`},
		{"on_error failed", `on_failure: {move: VALUE}`},
		{"batch", `mode: batch`},
	},
	"jobs[].retry": {
		{"limit max count times retries max_attempts max_retries tries", `attempts: MORE`},
		{"interval delay wait interval_sec sleep pause", `backoff: SECONDS`},
		{"max_delay max_interval", `max_backoff: SECONDS`},
	},
	"jobs[].bounds":   boundWords,
	"agents[].bounds": boundWords,
	"jobs[].notify": {
		{"when events if only", `on: [failure]`},
		{"channel to via target targets", `channels: LIST`},
		{"message text content", `body: VALUE`},
		{"subject", `title: VALUE`},
		{"on_failure on_error failure error", `on: [failure]`},
		{"on_success success always", `on: [success, failure]`},
	},
	"jobs[].webhook": {
		{"url route endpoint uri", `path: /hooks/NAME`},
		{"token signature key signing_secret", `secret: secret:NAME`},
		{"provider type kind", `scheme: VALUE`},
	},
	"agents[].executor": executorWords,
	"jobs[].executor":   executorWords,
	"jobs[].playbook[]": {
		{"tool name uses use action function", `call: VALUE`},
		{"command cmd run script exec do", `call: shell_run, with: {command: COMMAND}`},
		{"args arguments params parameters input", `with: VALUE`},
		{"id as register output", `save: VALUE`},
		{"when condition unless", `if: VALUE`},
		{"for foreach loop with_items items", `each: '= EXPRESSION'`},
		{"continue_on_error ignore_errors continue_on", `on_error: continue`},
	},
	"agents[].grants": {
		{"command exec shell programs run", `commands: [{argv: [PROGRAM, '*']}]`},
		{"hosts host http web internet", `network: [{host: HOST}]`},
		{"files folders paths", `read: [FOLDER]`},
		{"secret", `secrets: [{name: NAME}]`},
	},
	"agents[].grants.commands[]": {{"command cmd program args", `argv: [PROGRAM, '*']`}},
	"agents[].grants.network[]":  {{"url domain name address", `host: VALUE`}, {"method", `methods: LIST`}},
	"jobs[].when[]": {
		{"cmd run script exec shell", `command: [PROGRAM, ARGUMENT]`},
		{"expression expr if", `that: VALUE`},
		{"url get", `http: VALUE`},
		{"path exists", `file: VALUE`},
		{"query", `sql: VALUE`},
	},
	"limits": {
		{"concurrency parallel max_runs jobs workers", `runs: VALUE`},
		{"cost max_cost budget daily_cost cost_usd", `cost_usd_per_day: VALUE`},
	},
}

var boundWords = []synonym{
	{"timeout time duration max_time time_limit runtime", `wall: SECONDS`},
	{"max_steps turns max_turns iterations", `steps: VALUE`},
	{"cost usd max_cost max_cost_usd", `cost_usd: VALUE`},
	{"max_tokens", `tokens: VALUE`},
	{"max_calls tool_calls", `calls: VALUE`},
}

var executorWords = []synonym{
	{"command cmd args program exec", `argv: [claude, -p, --output-format, stream-json]`},
	{"environment", `env: {NAME: secret:NAME}`},
	{"format output_format", `output: json`},
	{"type kind name", `argv: VALUE`},
}

// inJob returns the synonyms with ", in a job" added to their lines.
func inJob(all []synonym) (out []synonym) {
	for _, s := range all {
		out = append(out, synonym{s.words, s.lines + ", in a job"})
	}
	return out
}

// valueSynonyms lists words of other tools for the value of a key, by the path of the key.
var valueSynonyms = map[string][]synonym{
	"models[].provider": {
		{"claude anthropic-api", `provider: anthropic`},
		{"google vertex vertexai googleai bard", `provider: gemini`},
		{"gpt chatgpt openai-api open_ai", `provider: openai`},
		{"grok x-ai x.ai", `provider: xai`},
		{"azure azure-openai azureopenai", `provider: openai, base_url: https://RESOURCE.openai.azure.com/openai/v1`},
		{"lmstudio", `provider: openai, base_url: http://127.0.0.1:1234/v1`},
		{"llamacpp llama.cpp localai llama-server llamafile", `provider: openai, base_url: http://127.0.0.1:8080/v1`},
		{"vllm", `provider: openai, base_url: http://127.0.0.1:8000/v1`},
		{"litellm", `provider: openai, base_url: http://127.0.0.1:4000/v1`},
		{"perplexity nvidia huggingface deepinfra sambanova cohere moonshot kimi zai qwen dashscope custom other openai-compatible", `provider: openai, base_url: https://HOST/v1`},
		{"bedrock aws", `provider: openai with the base_url of a gateway that speaks OpenAI's protocol, such as LiteLLM`},
		{"togetherai together.ai", `provider: together`},
		{"fireworksai fireworks.ai", `provider: fireworks`},
		{"mistralai", `provider: mistral`},
		{"local", `provider: ollama`},
	},
	"notifications[].kind": {
		{"ntfy", `kind: url, url: ntfy://ntfy.sh/TOPIC`},
		{"slack", `kind: url, url: slack://hook:T…-B…-X…@webhook (the three parts of https://hooks.slack.com/services/T…/B…/X…)`},
		{"telegram", `kind: url, url: telegram://TOKEN@telegram?chats=CHAT`},
		{"discord", `kind: url, url: discord://TOKEN@ID (of https://discord.com/api/webhooks/ID/TOKEN)`},
		{"email mail smtp gmail", `kind: url, url: smtp://USER:PASSWORD@HOST:587/?from=ADDRESS&to=ADDRESS`},
		{"gotify", `kind: url, url: gotify://HOST/TOKEN`},
		{"pushover", `kind: url, url: pushover://shoutrrr:TOKEN@USER`},
		{"matrix", `kind: url, url: matrix://USER:PASSWORD@HOST:443/?rooms=ROOM`},
		{"mattermost", `kind: url, url: mattermost://HOST/TOKEN`},
		{"teams msteams signal whatsapp rocketchat zulip pushbullet ifttt pagerduty opsgenie bark shoutrrr", `kind: url, url: SERVICE://… as shoutrrr writes it (https://shoutrrr.nickfedor.com/services/overview)`},
		{"http https hook", `kind: webhook, url: https://HOST/PATH, secret: secret:NAME`},
		{"notify-send libnotify system dbus", `kind: desktop`},
	},
	"jobs[].overlap":      {{"forbid false no", `overlap: skip`}, {"allow true yes parallel", `overlap: allow`}, {"replace cancel restart", `overlap: cancel_previous`}, {"queue wait one", `overlap: queue_one`}},
	"jobs[].on_miss":      {{"catchup catch_up all true", `on_miss: run_catchup`}, {"once run", `on_miss: run_once`}, {"ignore drop false none", `on_miss: skip`}},
	"jobs[].watch.mode":   {{"each single file one", `mode: per_file`}, {"all group together", `mode: batch`}, {"sync folder", `mode: converge`}},
	"jobs[].notify.on[]":  {{"failed fail failures", `on: [failure]`}, {"done finished ok succeeded", `on: [success]`}, {"always all", `on: [success, failure]`}, {"approval approvals", `on: [waiting]`}},
	"jobs[].after[].on[]": {{"failed fail", `on: [error, timeout]`}, {"done finished ok succeeded", `on: [success]`}},
	"agents[].on_denied":  {{"ask wait approve", `on_denied: park`}, {"deny refuse skip", `on_denied: continue`}, {"error stop", `on_denied: fail`}},
	"agents[].sandbox":    {{"false none no disabled", `sandbox: off, and reason: WHY beside it`}},
	"log.level":           {{"warning", `level: warn`}, {"trace verbose all", `level: debug`}, {"err fatal critical", `level: error`}},
}

// plainWord removes separators, so that timeoutSeconds, timeout-seconds and timeout_seconds match.
var plainWord = strings.NewReplacer("_", "", "-", "", " ", "", ".", "")

func sameWord(a, b string) bool {
	return strings.EqualFold(plainWord.Replace(a), plainWord.Replace(b))
}

// linesFor returns the lines for a word in a table, or "".
func linesFor(table []synonym, word string) string {
	for _, s := range table {
		if slices.ContainsFunc(strings.Fields(s.words), func(one string) bool { return sameWord(one, word) }) {
			return s.lines
		}
	}
	return ""
}

var itemNumber = regexp.MustCompile(`\[\d+\]`)

// placeOf returns a path without item numbers, as in the tables. Keys of defaults are keys of jobs.
func placeOf(path string) string {
	path = itemNumber.ReplaceAllString(path, "[]")
	if path == "defaults" || strings.HasPrefix(path, "defaults.") {
		path = "jobs[]" + strings.TrimPrefix(path, "defaults")
	}
	return path
}

// keyPaths returns the paths of all keys.
var keyPaths = sync.OnceValue(func() (out []string) {
	for _, k := range Keys() {
		out = append(out, k.Path)
	}
	return out
})

// unknownKey returns a hint for an unknown key, or "".
func unknownKey(e entry, path string, known []string) string {
	place := placeOf(path)
	if lines := linesFor(synonyms[place], e.key); lines != "" {
		return "write " + fillIn(lines, e)
	}
	if lines := linesFor(synonyms[place], e.key+"[]"); lines != "" && e.value.kind == list {
		return "write " + fillIn(lines, e)
	}
	for _, key := range known { // such as runOnStart for run_on_start
		if sameWord(key, e.key) {
			return "write " + fillIn(key+": VALUE", e)
		}
	}

	// The key may belong one or two mappings deeper, like wall in bounds.
	all, prefix := keyPaths(), place+"."
	if place == "" {
		prefix = ""
	}
	var elsewhere []string
	for _, path := range all {
		parent, name := "", strings.TrimSuffix(path, "[]")
		if at := strings.LastIndex(name, "."); at >= 0 {
			parent, name = name[:at], name[at+1:]
		}
		if !sameWord(name, e.key) {
			continue
		}
		if below, ok := strings.CutPrefix(path, prefix); ok && place != "" && !strings.Contains(below, "[].") {
			return "write " + fillIn(nested(below, "VALUE"), e)
		}
		if parent != "" {
			elsewhere = append(elsewhere, strings.TrimSuffix(parent, "[]"))
		}
	}

	if near := text.DidYouMean(e.key, known); near != "" {
		return near
	}
	if len(elsewhere) > 0 && len(elsewhere) <= 3 {
		return e.key + " is a key of " + strings.Join(elsewhere, " and of ")
	}
	return ""
}

// nested writes a value below keys, in the flow form: bounds: {wall: VALUE}.
func nested(path, value string) string {
	parts := strings.Split(strings.TrimSuffix(path, "[]"), ".")
	return strings.Join(parts, ": {") + ": " + value + strings.Repeat("}", len(parts)-1)
}

var (
	wholeNumber = regexp.MustCompile(`^[0-9]+$`)
	fillMark    = regexp.MustCompile(`\b(VALUE|LIST|WHEN|COMMAND|SECONDS|MINUTES|DAYS|MORE|PROGRAM|KEY)\b`)
)

// fillIn replaces the marks in lines with the written value.
func fillIn(lines string, e entry) string {
	value := flow(e.value)
	if secretKey.MatchString(e.key) {
		value = "secret:NAME"
	}
	unit := func(of string) string {
		if wholeNumber.MatchString(value) {
			return value + of
		}
		return value
	}

	return fillMark.ReplaceAllStringFunc(lines, func(mark string) string {
		switch mark {
		case "LIST":
			if e.value.kind == scalar && value != "…" {
				return "[" + value + "]"
			}
		case "WHEN":
			if e.value.kind != scalar || value == "…" {
				return "daily at 08:00"
			}
		case "SECONDS":
			return unit("s")
		case "MINUTES":
			return unit("m")
		case "DAYS":
			return unit("d")
		case "MORE":
			return oneMore(e.value)
		case "KEY":
			return e.key
		case "COMMAND":
			if line := commandLine(e.value); line != "" {
				return flow(word(line, e.value.at))
			}
			return mark
		case "PROGRAM":
			if words := strings.Fields(commandLine(e.value)); len(words) > 0 {
				return flow(word(words[0], e.value.at))
			}
			return mark
		}
		return value
	})
}

// oneMore returns the number of attempts for a number of retries.
func oneMore(n *node) string {
	retries, err := strconv.Atoi(n.text)
	if err != nil || retries < 0 || retries > 1000 {
		return "3"
	}
	return strconv.Itoa(retries + 1)
}

// commandLine returns a command, which is a text or a list, as one line.
func commandLine(n *node) string {
	if n.kind != list {
		return n.text
	}
	var words []string
	for _, item := range n.items {
		words = append(words, item.text)
	}
	return strings.Join(words, " ")
}

// plainFlow matches a text that needs no quotes in flow form.
var plainFlow = regexp.MustCompile(`^[A-Za-z0-9_./~+][A-Za-z0-9_./~+@%=-]*(:[A-Za-z0-9_./~+@%=-]+)*( [A-Za-z0-9_./~+@%=-]+(:[A-Za-z0-9_./~+@%=-]+)*)*$`)

// longestFlow is the maximum length of a value in a hint.
const longestFlow = 80

// Flow writes a text in the flow form of YAML, or … if it is too long.
func Flow(text string) string { return flow(word(text, config.Position{})) }

// FlowList writes a list of texts like Flow.
func FlowList(words []string) string { return flow(wordList(words)) }

// flow writes a value in the flow form of YAML, or … if it is too long.
func flow(n *node) string {
	var out string
	switch n.kind {
	case scalar:
		switch out = n.text; {
		case n.null() || strings.ContainsAny(out, "\n\r\t"):
			return "…"
		case n.tag == "!!str" && !plainFlow.MatchString(out):
			out = "'" + strings.ReplaceAll(out, "'", "''") + "'"
		}
	case list:
		parts := make([]string, len(n.items))
		for i, item := range n.items {
			parts[i] = flow(item)
		}
		out = "[" + strings.Join(parts, ", ") + "]"
	default:
		parts := make([]string, len(n.entries))
		for i, e := range n.entries {
			parts[i] = e.key + ": " + flow(e.value)
		}
		out = "{" + strings.Join(parts, ", ") + "}"
	}
	if len(out) > longestFlow {
		return "…"
	}
	return text.Visible(out)
}
