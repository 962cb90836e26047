package imports

import (
	"path"
	"slices"
	"strings"
)

// agentProgram describes the command line of a coding agent that runs one prompt and exits.
type agentProgram struct {
	begins []string   // required words after the name
	asks   []string   // options with the prompt as their value
	plain  []string   // options without a value
	valued []string   // options with a value
	prompt bool       // the prompt can be a positional argument
	adds   [][]string // options for output that rouse can parse and for a prompt on standard input
	login  string     // directory in HOME with the login
}

// agentPrograms lists the coding agents that are converted to executors. A command with an option
// that is not listed is not converted.
var agentPrograms = map[string]agentProgram{
	"claude": {
		plain: []string{"-p", "--print", "--verbose", "--dangerously-skip-permissions", "-c", "--continue", "--include-partial-messages", "--strict-mcp-config"},
		valued: []string{"--model", "--fallback-model", "--max-turns", "--max-budget-usd", "--permission-mode", "--add-dir", "--mcp-config", "--settings",
			"--system-prompt", "--append-system-prompt", "--allowedTools", "--allowed-tools", "--disallowedTools", "--disallowed-tools", "--output-format"},
		prompt: true, adds: [][]string{{"--output-format", "stream-json"}, {"--verbose"}, {"-p"}}, login: "~/.claude",
	},
	"codex": {
		begins: []string{"exec"}, prompt: true,
		plain:  []string{"--json", "--full-auto", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--yolo", "--ephemeral"},
		valued: []string{"-m", "--model", "-c", "--config", "-p", "--profile", "-s", "--sandbox", "-a", "--ask-for-approval", "-C", "--cd", "-o", "--output-last-message"},
		adds:   [][]string{{"--json"}, {"--skip-git-repo-check"}, {"-"}}, login: "~/.codex",
	},
	"gemini": {
		asks: []string{"-p", "--prompt"}, prompt: true,
		plain:  []string{"-y", "--yolo", "--all-files", "-a"},
		valued: []string{"-m", "--model", "--approval-mode", "--include-directories", "--allowed-tools", "-o", "--output-format"},
		adds:   [][]string{{"--output-format", "stream-json"}}, login: "~/.gemini",
	},
}

// agentCall returns the argv and prompt of a coding agent. If the command cannot be converted, why
// is the reason. known reports whether the program is a coding agent.
func agentCall(argv []string) (out []string, prompt, why string, known bool) {
	p, known := agentPrograms[path.Base(argv[0])]
	if !known {
		return nil, "", "", false
	}
	words := argv[1:]
	if !slices.Equal(words[:min(len(words), len(p.begins))], p.begins) {
		return nil, "", "it does not run one prompt", true
	}
	out, words = slices.Clone(argv[:1+len(p.begins)]), words[len(p.begins):]

	var prompts []string
	for i := 0; i < len(words); i++ {
		word := words[i]
		name, value, joined := strings.Cut(word, "=")
		switch {
		case slices.Contains(p.asks, name):
			if !joined {
				if i++; i == len(words) {
					return nil, "", "its prompt is missing", true
				}
				value = words[i]
			}
			prompts = append(prompts, value)
		case slices.Contains(p.plain, word):
			out = append(out, word)
		case slices.Contains(p.valued, name):
			pair := []string{word}
			if !joined {
				if i++; i == len(words) {
					return nil, "", "the option " + word + " has no value", true
				}
				pair = append(pair, words[i])
			}
			if name != "--output-format" && name != "-o" || argv[0] == "codex" { // replaced below
				out = append(out, pair...)
			}
		case strings.HasPrefix(word, "-"):
			return nil, "", "the option " + shown(word) + " may have a value or none", true
		default:
			prompts = append(prompts, word)
		}
	}
	if len(prompts) != 1 || strings.TrimSpace(prompts[0]) == "" {
		return nil, "", "exactly one prompt is needed", true
	}

	for _, add := range p.adds {
		given := slices.Contains(out, add[0]) || add[0] == "-p" && slices.Contains(out, "--print")
		if !given {
			out = append(out, add...)
		}
	}
	return out, prompts[0], "", true
}

// agentProgram converts a command of a coding agent to an executor, and reports whether it did.
func (j *Job) agentProgram(argv []string, env environment) bool {
	out, prompt, why, known := agentCall(argv)
	switch {
	case !known:
		return false
	case why == "" && len(j.calls)+len(j.executor) > 0:
		why = "another command belongs to the same job"
	}
	name := path.Base(argv[0])
	if why != "" {
		j.lose("%s is a coding agent, which should be an executor here, but %s: write executor: {argv: [%s, …], network: host} and prompt: (docs/guides/coding-agents.md)", name, why, name)
		return false
	}

	j.executor, j.prompt = out, prompt
	for _, v := range env {
		switch {
		case secretName.MatchString(v.name) && v.value != "":
			secret := strings.ToLower(v.name)
			j.lose("%s looks like a secret and is not written here: rouse secrets set %s, then executor: {env: {%s: secret:%s}}", v.name, secret, v.name, secret)
		default:
			j.executorEnv = append(j.executorEnv, v)
		}
	}
	j.lose("%s has its own HOME and is not signed in there: sign in once (docs/guides/coding-agents.md, Where it runs) or add login: [%s] to the executor, then enable the job", name, agentPrograms[name].login)
	return true
}

// desktopVariables lists the variables that only locate the desktop.
var desktopVariables = []string{"DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "WAYLAND_DISPLAY"}

// withoutDesktop removes leading assignments of desktopVariables from a command.
func withoutDesktop(line string) string {
	for {
		word, rest, found := cutField(line)
		name, _, set := strings.Cut(word, "=")
		if !found || !set || !slices.Contains(desktopVariables, name) {
			return line
		}
		line = rest
	}
}

// notice converts a notify-send command to a call of notify. It reports whether it did.
func (j *Job) notice(argv []string) bool {
	if path.Base(argv[0]) != "notify-send" {
		return false
	}

	var texts []string
	for i := 1; i < len(argv); i++ {
		switch word := argv[i]; {
		case slices.Contains([]string{"-u", "--urgency", "-t", "--expire-time", "-i", "--icon", "-a", "--app-name", "-c", "--category", "-h", "--hint", "-n", "--app-icon"}, word):
			i++
		case word == "--":
			texts = append(texts, argv[i+1:]...)
			i = len(argv)
		case !strings.HasPrefix(word, "-"):
			texts = append(texts, word)
		}
	}
	if len(texts) == 0 || len(texts) > 2 || strings.TrimSpace(texts[0]) == "" {
		return false
	}
	c := call{title: texts[0]}
	if len(texts) == 2 {
		c.body = texts[1]
	}
	j.calls = append(j.calls, c)
	j.remark("notify-send became a notice; notify: {channels: […]} sends it to other channels than the desktop")
	return true
}
