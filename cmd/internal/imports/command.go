package imports

import (
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"rouse/agent/tool/shell"
	"rouse/internal/fspath"
)

// variable is an environment variable of a command.
type variable struct{ name, value string }

// environment holds the variables of a command, each name once.
type environment []variable

// with returns a copy of the environment with a variable added or replaced.
func (e environment) with(name, value string) environment {
	out := slices.DeleteFunc(slices.Clone(e), func(v variable) bool { return v.name == name })
	return append(out, variable{name, value})
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	secretName   = regexp.MustCompile(`(?i)key|secret|token|passw|credential`)
	logFile      = regexp.MustCompile(`\.log$|^/var/log/|^/dev/null$`)
)

// asks lists programs that need the network.
var asks = []string{"curl", "wget", "ssh", "scp", "sftp", "git", "apt", "apt-get", "dnf", "yum", "certbot", "ping", "dig", "nslookup", "mail", "sendmail", "msmtp", "rclone", "aws", "gcloud", "az", "kubectl", "docker", "podman", "nc", "telnet", "claude", "codex", "gemini"}

// command adds a command line to a job: either one program with an exact grant, or a script.
func (j *Job) command(line string, env environment) bool {
	c, ok := j.read(withoutDesktop(strings.TrimSpace(line)))
	if !ok {
		return false
	}

	if j.Name == "" {
		j.Name = commandName(c)
	}
	if c.argv != nil && (j.notice(c.argv) || j.agentProgram(c.argv, env)) {
		return true
	}
	if len(j.executor) > 0 {
		j.lose("not carried over: %s: the job of a coding agent has no other commands", shown(c.text))
		return true
	}
	line, env = j.withEnvironment(c, env)
	if line == "" {
		argv := c.argv
		if len(env) > 0 {
			argv = append(env.words(), argv...)
		}
		line = join(argv)
		j.allow(argv)
	}

	j.needs(c)
	j.relative = append(j.relative, c.relative()...)
	j.calls = append(j.calls, call{command: line})
	return true
}

// parsed is a parsed command line.
type parsed struct {
	text string
	argv []string // nil for a script
	why  string
}

// words returns the words of a command. For a script, the result is an approximation.
func (c parsed) words() []string {
	if c.argv != nil {
		return c.argv
	}
	return strings.FieldsFunc(c.text, func(r rune) bool { return strings.ContainsRune(" \t\n;|&<>(){}'\"`=", r) })
}

// commandName derives a job name from a command. It uses the program, or the script an interpreter
// runs.
func commandName(c parsed) string {
	words := c.words()
	if scripts := shell.Scripts(words); len(scripts) > 0 && c.argv != nil {
		words = scripts[len(scripts)-1:]
	}
	for _, word := range words {
		base := path.Base(word)
		if name := nameOf(strings.TrimSuffix(base, path.Ext(base)), ""); name != "" && word != "cd" && word != "env" && !strings.Contains(word, "=") {
			return name
		}
	}
	return "job"
}

// read parses a command line. It removes redirections to logs and a leading cd.
func (j *Job) read(line string) (c parsed, ok bool) {
	line = strings.TrimSpace(line)
	argv, why, err := shell.Plain(line)
	if err != nil {
		j.lose("%s", err)
		return c, false
	}

	if argv == nil {
		if short, plain := j.quietly(line); plain != nil {
			line, argv = short, plain
		}
	}
	if argv == nil {
		if dir, rest := changesFolder(line); dir != "" && j.dir == "" {
			plain, _, err := shell.Plain(rest)
			// Many crontabs use the form cd DIR && PROGRAM >> LOG.
			if err == nil && plain == nil {
				rest, plain = j.quietly(rest)
			}
			if err == nil && plain != nil {
				line, argv, j.dir = rest, plain, dir
			}
		}
	}

	return parsed{line, argv, why}, true
}

// quietly returns a command line without its output redirections. argv is nil if the rest is not a
// single program.
func (j *Job) quietly(line string) (short string, argv []string) {
	short, gone, quiet := withoutRedirects(line)
	if short == "" {
		return line, nil
	}
	argv, _, err := shell.Plain(short)
	if err != nil || argv == nil {
		return line, nil
	}

	if quiet {
		j.remark("%s is left out: the output of each run is on record, see rouse show", gone)
	} else {
		j.remark("%s is left out: the output of each run is on record (rouse show), and no file has it", gone)
	}
	return short, argv
}

// withoutRedirects removes redirections of output to log files and /dev/null. quiet reports whether
// all of them went to /dev/null.
func withoutRedirects(line string) (short, gone string, quiet bool) {
	s := statement(line)
	if s == nil || len(s.Redirs) == 0 || s.Background || s.Negated {
		return "", "", false
	}
	if _, simple := s.Cmd.(*syntax.CallExpr); !simple {
		return "", "", false
	}

	quiet = true
	for _, r := range s.Redirs {
		to := r.Word.Lit()
		switch r.Op {
		case syntax.DplOut: // 2>&1
		case syntax.RdrOut, syntax.AppOut, syntax.RdrAll, syntax.AppAll, syntax.RdrClob:
			if !logFile.MatchString(to) || (r.Op != syntax.AppOut && r.Op != syntax.AppAll && to != "/dev/null") {
				return "", "", false // an overwritten file is a result of the job
			}
			quiet = quiet && to == "/dev/null"
		default:
			return "", "", false
		}
		if r.Pos().Offset() < s.Cmd.End().Offset() {
			return "", "", false // the redirection is before or among the arguments
		}
	}

	at := s.Cmd.End().Offset()
	return strings.TrimSpace(line[:at]), strings.TrimSpace(strings.TrimRight(line[at:], "; \t\n")), quiet
}

// statement returns the only statement of a script, or nil if there is not exactly one.
func statement(script string) *syntax.Stmt {
	tree, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil || len(tree.Stmts) != 1 {
		return nil
	}
	return tree.Stmts[0]
}

// changesFolder splits "cd DIR && rest".
func changesFolder(line string) (dir, rest string) {
	s := statement(line)
	if s == nil || len(s.Redirs) > 0 || s.Background {
		return "", ""
	}
	both, ok := s.Cmd.(*syntax.BinaryCmd)
	if !ok || both.Op != syntax.AndStmt {
		return "", ""
	}

	first := line[both.X.Pos().Offset():both.X.End().Offset()]
	argv, _, err := shell.Plain(first)
	if err != nil || len(argv) != 2 || argv[0] != "cd" || !path.IsAbs(argv[1]) {
		return "", ""
	}
	return path.Clean(argv[1]), line[both.Y.Pos().Offset():]
}

// withEnvironment applies the environment to a command. It returns the variables that a plain
// command gets as arguments of env, or a script that sets them.
func (j *Job) withEnvironment(c parsed, env environment) (script string, left environment) {
	var set strings.Builder
	for _, v := range env {
		if secretName.MatchString(v.name) && v.value != "" {
			name := strings.ToLower(v.name)
			j.lose("%s looks like a secret, and is not written here: rouse secrets set %s, then grants: {secrets: [{name: %s}]} at the agent and env %s=__OSL_SECRET[%s]__ before the command, in its grant too",
				v.name, name, name, v.name, name)
			continue
		}

		left = append(left, v)
		set.WriteString("export " + v.name + "=" + word(v.value) + "\n")
	}

	// A grant cannot match a program name that contains a pattern.
	if c.argv != nil && !strings.ContainsAny(c.argv[0], `*?[`) {
		return "", left
	}

	why := c.why
	if why == "" {
		why = "a program with a pattern in its name"
	}
	j.remark("it needs a shell (%s), which no grant covers: its first run waits in rouse inbox, and rouse approve ITEM --always allows exactly this text from then on", why)
	return set.String() + c.text, nil
}

// words returns the variables as arguments of the env program.
func (e environment) words() []string {
	out := []string{"env"}
	for _, v := range e {
		out = append(out, v.name+"="+v.value)
	}
	return out
}

// join formats an argv as a command line.
func join(argv []string) string {
	out := make([]string, len(argv))
	for i, w := range argv {
		out[i] = word(w)
		if i == 0 && strings.Contains(w, "=") { // would be read as a variable
			out[i] = quoted(w)
		}
	}
	return strings.Join(out, " ")
}

// bareWord matches a word that needs no quoting in a shell.
var bareWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// word quotes a word for a shell. Unlike shell.RunArgs, its result always counts as plain.
func word(w string) string {
	if bareWord.MatchString(w) {
		return w
	}
	return quoted(w)
}

func quoted(w string) string { return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'" }

// allow adds a grant for exactly this argv, unless the agent can change the script it runs.
func (j *Job) allow(argv []string) {
	if slices.ContainsFunc(shell.Scripts(argv), func(script string) bool { return !path.IsAbs(script) || j.dir != "" && fspath.Within(script, j.dir) }) {
		// A grant would cover any content the agent writes there. An approval covers one content.
		j.remark("its agent can write what it runs, so that no grant is written: its first run waits in rouse inbox, and rouse approve ITEM --always allows this content from then on")
		return
	}

	pattern := slices.Clone(argv)
	for i, word := range pattern[1:] {
		if strings.ContainsAny(word, `*?[`) {
			pattern[i+1] = escapeGlob.Replace(word)
		}
	}
	j.grants = append(j.grants, pattern)
}

var escapeGlob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// needs adds remarks about paths and network access that a confined program lacks, judging by its
// words.
func (j *Job) needs(c parsed) {
	words := c.words()
	var paths, programs []string
	for _, w := range words {
		_, operand, found := strings.Cut(w, "=")
		if !found || c.argv == nil {
			operand = w
		}
		switch {
		case hasHost(w) || slices.Contains(asks, path.Base(w)):
			if !hasHost(w) {
				w = path.Base(w)
			}
			if !slices.Contains(programs, w) {
				programs = append(programs, w)
			}
		case isPath(operand) && !shell.IsSystemProgram(operand) && (j.dir == "" || !fspath.Within(operand, j.dir)) && !slices.Contains(paths, operand):
			paths = append(paths, operand)
		}
	}

	if len(paths) > 0 {
		j.lose("it names %s, which its agent can neither read nor write: give the agent grants: {read: [...]} or a workdir there, then enable the job", shown(strings.Join(paths, ", ")))
	}
	if len(programs) > 0 {
		j.lose("it asks the network (%s), and a command has none: write network: host into its grant (a script gets none), then enable the job", shown(strings.Join(programs, ", ")))
	}
}

// relative returns the arguments that are relative paths.
func (c parsed) relative() (out []string) {
	for _, w := range c.words() {
		if w == "." || w == ".." || strings.Contains(w, "/") && !strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "/") && !strings.Contains(w, "://") && !isPath(w) {
			out = append(out, w)
		}
	}
	return out
}

// startedIn adds a remark about the other scheduler's working directory if commands use relative
// paths.
func (j *Job) startedIn(where string) {
	if j.dir == "" && len(j.relative) > 0 {
		j.lose("it was started in %s, from which %s is told; here it starts in the workdir of its agent", where, shown(strings.Join(j.relative, ", ")))
	}
}

func isPath(w string) bool {
	return (strings.HasPrefix(w, "/") && w != "/") && w != "/dev/null" || strings.HasPrefix(w, "~") || strings.HasPrefix(w, "$HOME")
}

// hasHost reports whether a word names a server: https://…, user@host:, host:path.
func hasHost(w string) bool {
	if strings.Contains(w, "://") {
		return true
	}
	host, _, found := strings.Cut(w, ":/")
	if !found {
		return false
	}
	_, err := netip.ParseAddr(host)
	return err == nil || strings.Contains(host, "@") || strings.Contains(host, ".")
}
