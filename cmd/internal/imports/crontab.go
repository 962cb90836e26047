package imports

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"rouse/agent/tool/shell"
)

// CrontabOptions holds options for reading a crontab.
type CrontabOptions struct {
	// Users means that each command is preceded by a user name, as in /etc/crontab. It is also
	// detected.
	Users bool
}

var (
	// cronVariable matches a line that sets a variable.
	cronVariable = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*|"[^"]+"|'[^']+')\s*=\s*(.*)$`)
	// userColumn matches a comment with a user column, as Debian writes it above the fields.
	userColumn = regexp.MustCompile(`(?m)^#.*\bdow\s+user(-name)?\b|^#.*\buser-name\b`)
	userName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*\$?$`)
	freeBSD    = regexp.MustCompile(`^@([0-9]+)$`)
)

// programDefaults returns the defaults of jobs that run programs. They match schedulers without
// limits.
func programDefaults(onMiss setting) []setting {
	return []setting{
		onMiss,
		{"overlap", "skip", "one that still runs is not started again; allow does"},
		{"notify", raw("{on: [failure, waiting]}"), "rouse show has the output of each run"},
		{"bounds", raw("{wall: 24h, idle: 2h}"), "a program that writes nothing for 2 hours is ended too"},
	}
}

// confined is the note about sandboxed programs at the head of each file.
var confined = []string{
	"",
	"Programs run confined: they read and write the workdir of their agent, see the programs of the system, and have no network.",
	"They start in that workdir, which is HOME/agents/NAME/work where none is named. What they need beside it is granted at the",
	"agent: docs/guides/commands.md and docs/guides/coming-from-cron.md say how.",
	"",
}

// crontab is the state of reading one crontab.
type crontab struct {
	*Document
	file    File
	users   bool
	env     environment
	zone    string // value of CRON_TZ
	shell   string
	home    string
	hours   string   // value of START_HOURS_RANGE
	delay   int      // RANDOM_DELAY in minutes
	pending []string // comments that may belong to the next job
}

// Crontab reads crontabs of users (crontab -l) and of the system.
func Crontab(files []File, o CrontabOptions) *Document {
	d := NewDocument("crontab", confined...)
	d.Defaults = programDefaults(setting{"on_miss", "skip", "cron does not run what it missed"})

	for _, f := range files {
		users := o.Users || f.Name == "/etc/crontab" || path.Base(path.Dir(f.Name)) == "cron.d" || userColumn.MatchString(f.Text)
		c := &crontab{Document: d, file: f, users: users}
		for i, line := range strings.Split(f.Text, "\n") {
			c.line(i+1, strings.TrimSpace(line))
		}
		c.keep()
	}
	return d
}

func (c *crontab) line(n int, line string) {
	switch m := cronVariable.FindStringSubmatch(line); {
	case line == "":
		c.keep()
	case line[0] == '#':
		c.pending = append(c.pending, strings.TrimSpace(strings.TrimLeft(line, "#")))
	case m != nil:
		c.keep()
		said := where(c.file.Name, n, line)
		if remark := c.variable(strings.Trim(m[1], `"'`), unquoteCron(m[2])); remark != "" {
			said += " (" + remark + ")"
		}
		c.note(said)
	default:
		c.job(n, line)
	}
}

// keep adds the pending comments as comments without a job.
func (c *crontab) keep() {
	if len(c.pending) > 0 {
		c.note(c.pending...)
		c.pending = nil
	}
}

func unquoteCron(s string) string {
	if len(s) > 1 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// standardPath reports whether all directories of a PATH are standard ones.
func standardPath(value string) bool {
	for dir := range strings.SplitSeq(value, ":") {
		if !slices.Contains([]string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/games"}, strings.TrimSuffix(dir, "/")) {
			return false
		}
	}
	return true
}

// variable sets a variable for the jobs below it.
func (c *crontab) variable(name, value string) (remark string) {
	switch name {
	case "CRON_TZ":
		c.zone = value
	case "MAILTO":
		if value == "" {
			return "cron told nobody; rouse tells of errors on the desktop, unless notify says otherwise"
		}
		return "cron mailed the output there: a channel {name: mail, kind: url, url: secret:mail} (smtp://…) and notify: {channels: [mail]} do"
	case "RANDOM_DELAY":
		c.delay, _ = strconv.Atoi(value) // cron also ignores a value that is not a number
	case "START_HOURS_RANGE": // used by anacron
		c.hours = value
	case "SHELL":
		c.shell = value
	case "HOME":
		c.home = value
	case "PATH":
		c.env = slices.DeleteFunc(c.env, func(v variable) bool { return v.name == name })
		if !standardPath(value) {
			c.env = c.env.with(name, value)
		}
	case "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING", "LOGNAME", "USER":
		return "of no use here"
	default:
		c.env = c.env.with(name, value)
	}
	return ""
}

func (c *crontab) job(n int, line string) {
	source := where(c.file.Name, n, line)
	kept := c.pending
	c.pending = nil
	refuse := func(format string, args ...any) {
		c.refuse(fmt.Sprintf(format, args...), append(kept, source)...)
	}
	if len(c.items) >= MaxJobs {
		refuse("there are more than %d jobs", MaxJobs)
		return
	}

	j := &Job{Source: []string{source}, Kept: kept}
	// In SUSE and cronie, a - before the minute keeps the job out of the system log.
	if rest, ok := strings.CutPrefix(line, "-"); ok {
		line = rest
		j.remark("the - before the minute is left out: each run is on record")
	}

	rest, err := c.when(j, line)
	if err != nil {
		refuse("%s", err)
		return
	}
	if c.users {
		user, command, found := cutField(rest)
		if !found || !userName.MatchString(user) {
			refuse("a line of a crontab of the system has a user before its command")
			return
		}
		rest = command
		j.lose("cron ran it as %s; here it has your rights", shown(user))
	}
	rest = flags(j, rest)
	if rest == "" {
		refuse("it has no command")
		return
	}

	if !c.command(j, rest) {
		refuse("%s", strings.Join(j.Remarks, "; "))
		return
	}
	c.surroundings(j)
	c.add(j)
}

// flags removes OpenBSD's options before a command. -n and -q reduce output, and -s equals overlap:
// skip.
func flags(j *Job, text string) string {
	for strings.HasPrefix(text, "-") {
		word, rest, _ := cutField(text)
		j.leave(word, []string{"-n", "-q", "-s"}, "the option %s before the command is not carried over", shown(word))
		text = rest
	}
	return text
}

// when parses the time fields and returns the rest of the line.
func (c *crontab) when(j *Job, line string) (rest string, err error) {
	if strings.HasPrefix(line, "@") {
		word, rest, _ := cutField(line)
		switch name := strings.ToLower(word); {
		case name == "@reboot":
			j.set("run_on_start", true)
			j.remark("@reboot is each start of the daemon here, which may be later than that of the machine, and more often")
		case name == "@every_minute":
			j.set("schedule", "* * * * *")
		case name == "@every_second":
			j.set("schedule", "* * * * * *")
		case freeBSD.MatchString(name):
			j.set("every", name[1:]+"s")
			j.remark("counted from one start to the next, not from the end of the last run")
		default:
			j.set("schedule", word)
		}
		c.setZone(j)
		return rest, nil
	}

	var fields []string
	for rest = line; len(fields) < 5; {
		field, after, found := cutField(rest)
		if !found {
			return "", fmt.Errorf("five fields of time and a command are needed")
		}
		fields, rest = append(fields, field), after
	}
	expression, err := cronFields(j, fields)
	if err != nil {
		return "", err
	}
	j.set("schedule", expression)
	c.setZone(j)
	return rest, nil
}

func (c *crontab) setZone(j *Job) {
	if c.zone != "" {
		j.set("timezone", c.zone)
	}
	if c.delay > 0 {
		j.set("jitter", fmt.Sprintf("%dm", c.delay))
	}
}

// cutField splits off the first word. found is false if the rest is empty.
func cutField(s string) (field, rest string, found bool) {
	s = strings.TrimLeft(s, " \t")
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, "", false
	}
	return s[:i], strings.TrimSpace(s[i:]), true
}

// command adds the command of a line. The first % ends the command; the text after it is the input.
func (c *crontab) command(j *Job, text string) bool {
	command, input := splitPercent(text)
	if input != "" {
		if plain, _, err := shell.Plain(command); err == nil {
			j.Name = commandName(parsed{text: command, argv: plain})
		}
		j.remark("what follows the %% is its input, which only a shell can give it")
		command = "printf '%s' " + word(input) + " | { " + command + "\n}"
	}
	return j.command(command, c.env)
}

// splitPercent splits a line at the first % as cron does. \% is a percent sign, and further % are
// line breaks.
func splitPercent(s string) (command, input string) {
	var b strings.Builder
	split := -1
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == '%':
			b.WriteByte('%')
			i++
		case s[i] == '%' && split < 0:
			split = b.Len()
		case s[i] == '%':
			b.WriteByte('\n')
		default:
			b.WriteByte(s[i])
		}
	}
	if split < 0 {
		return strings.TrimSpace(b.String()), ""
	}
	return strings.TrimSpace(b.String()[:split]), b.String()[split:] + "\n"
}

// surroundings adds remarks about the environment cron provides.
func (c *crontab) surroundings(j *Job) {
	j.startedIn("the home folder of its user")
	if c.hours != "" {
		j.lose("START_HOURS_RANGE=%s is not carried over", shown(c.hours))
	}
	if c.home != "" {
		j.lose("HOME=%s is not set: a command has an empty HOME of its own", shown(c.home))
	}
	if base := path.Base(c.shell); c.shell != "" && base != "sh" && base != "bash" && base != "dash" && len(j.grants) == 0 {
		j.lose("its shell was %s; here it is bash", shown(c.shell))
	}
}

// cronField describes a field of a crontab.
type cronField struct {
	name     string
	min, max int
}

var cronFieldRules = []cronField{{"minute", 0, 59}, {"hour", 0, 23}, {"day-of-month", 1, 31}, {"month", 1, 12}, {"day-of-week", 0, 7}}

// cronFields converts the time fields of a crontab line to rouse's syntax.
func cronFields(j *Job, fields []string) (string, error) {
	out := make([]string, len(fields))
	for i, rule := range cronFieldRules {
		var err error
		if out[i], err = rule.translate(j, fields[i]); err != nil {
			return "", err
		}
	}
	return strings.Join(out, " "), nil
}

func (r cronField) translate(j *Job, field string) (string, error) {
	items := strings.Split(field, ",")
	for i, item := range items {
		if low, high, random := strings.Cut(item, "~"); random {
			one, err := r.random(j, low, high)
			if err != nil || len(items) > 1 {
				return "", fmt.Errorf("the %s %q is chosen by chance, which is carried over for a minute alone", r.name, field)
			}
			return one, nil
		}

		body, step, stepped := strings.Cut(item, "/")
		if !stepped {
			continue
		}
		n, err := strconv.Atoi(step)
		if err != nil || n < 1 {
			return "", fmt.Errorf("the step %q of the %s is no number", step, r.name)
		}
		if _, err := strconv.Atoi(body); err == nil {
			j.remark("%s of the %s is every %s from %s on here; cron refuses it, or takes %s alone", item, r.name, step, body, body)
		}
		if n > r.max-r.min { // cron keeps only the first value
			if items[i] = body; body == "*" {
				items[i] = strconv.Itoa(r.min)
			}
			if low, _, ranged := strings.Cut(body, "-"); ranged {
				items[i] = low
			}
		}
	}

	// In cron, a list that begins with a star counts as a star. In rouse, each item of the list
	// counts.
	return strings.Join(items, ","), nil
}

// random converts a random minute of cronie to a fixed minute with jitter.
func (r cronField) random(j *Job, low, high string) (string, error) {
	from, to := r.min, r.max
	var err error
	if low != "" {
		if from, err = strconv.Atoi(low); err != nil {
			return "", err
		}
	}
	if high != "" {
		if to, err = strconv.Atoi(high); err != nil {
			return "", err
		}
	}
	if r.name != "minute" || from < r.min || to > r.max || to < from {
		return "", fmt.Errorf("no range of minutes")
	}
	j.set("jitter", fmt.Sprintf("%dm", to-from+1))
	j.remark("%s~%s was a minute chosen by chance; here the start is spread over the same minutes", low, high)
	return strconv.Itoa(from), nil
}
