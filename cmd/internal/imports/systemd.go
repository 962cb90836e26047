package imports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rouse/internal/text"
)

// SystemdOptions holds values of systemd specifiers.
type SystemdOptions struct {
	Home string // %h
	User string // %u
}

// timer is a systemd timer and the service it starts.
type timer struct {
	*Document
	SystemdOptions
	timer, service *unit
	instance       string
	// The original service. service is a copy, so that each timer tracks its own use of the
	// directives.
	from *unit
}

// Systemd reads timers and the services they start.
func Systemd(files []File, o SystemdOptions) *Document {
	d := NewDocument("systemd", confined...)
	d.Defaults = programDefaults(setting{"on_miss", "skip", "a timer that is not Persistent= does not run what it missed"})

	var units []*unit
	for _, f := range files {
		units = append(units, parseUnit(f))
	}
	started := map[*unit]bool{}
	for _, u := range units {
		if strings.HasSuffix(u.name, ".timer") {
			t := &timer{Document: d, SystemdOptions: o, timer: u}
			t.find(units)
			started[t.from] = true
			t.jobs()
		}
	}
	for _, u := range units {
		if !strings.HasSuffix(u.name, ".timer") && !started[u] {
			d.note(append([]string{u.name + " is started by no timer that was read"}, u.tell()...)...)
		}
	}
	return d
}

// tell returns all directives of a unit as lines with their positions.
func (u *unit) tell() (out []string) {
	for _, line := range u.lines {
		out = append(out, where(u.name, line.at, "["+line.section+"] "+line.key+"="+line.value))
	}
	return append(out, u.odd...)
}

// find sets the service of a timer, from Unit= or the timer's name. For a template, it also sets
// the instance.
func (t *timer) find(units []*unit) {
	name := strings.TrimSuffix(t.timer.name, ".timer") + ".service"
	if other := t.timer.last("Timer", "Unit"); other != "" {
		name = other
	}
	base, instance, isInstance := strings.Cut(strings.TrimSuffix(name, ".service"), "@")
	t.instance = instance
	for _, u := range units {
		// Copy the service: several timers can start it, and each tracks the directives it has
		// used.
		if u.name == name || isInstance && u.name == base+"@.service" {
			fresh := *u
			fresh.lines = slices.Clone(u.lines)
			t.service, t.from = &fresh, u
		}
	}
	if t.service == nil {
		t.service = &unit{name: name}
	}
}

func (t *timer) jobs() {
	source := append(t.timer.tell(), t.service.tell()...)
	base := &Job{Name: nameOf(strings.TrimSuffix(t.timer.name, ".timer"), "timer"), Source: source}
	if len(t.service.lines) == 0 {
		t.refuse(t.service.name+" was not given, or holds nothing: name its folder, or both files", source...)
		return
	}

	for _, u := range []*unit{t.timer, t.service} {
		for _, about := range []string{"Description", "Documentation"} {
			base.Kept = append(base.Kept, u.all("Unit", about)...)
		}
	}
	if !t.work(base) {
		t.refuse(strings.Join(base.Remarks, "; "), source...)
		return
	}
	times := t.times(base)
	t.leftOver(base)

	if len(times) == 0 {
		base.lose("it has no time that could be carried over, so that only rouse run starts it")
		times = []calendar{{}}
	}
	for i, at := range times {
		j := *base
		j.settings, j.when, j.Remarks = slices.Clone(base.settings), slices.Clone(at.when), slices.Clone(base.Remarks)
		if i > 0 {
			j.Kept, j.Source = nil, []string{fmt.Sprintf("%s has %d times, each a job of its own; this is the one of %s", t.timer.name, len(times), cmp.Or(at.cron, at.at))}
		}
		t.schedule(&j, at)
		t.add(&j)
	}
}

func (t *timer) schedule(j *Job, at calendar) {
	// Put the schedule first, where readers expect it.
	rest := j.settings
	j.settings = nil
	if at.cron != "" {
		j.set("schedule", at.cron)
	}
	if at.at != "" {
		j.set("at", at.at)
	}
	if at.zone != "" {
		j.set("timezone", at.zone)
	}
	j.settings = append(j.settings, rest...)
	for i, w := range j.when {
		j.when[i] = "{that: " + quote(w) + "}"
	}
}

// times returns the calendar expressions of the timer. It stores intervals directly in the job.
func (t *timer) times(j *Job) (out []calendar) {
	for _, text := range t.timer.all("Timer", "OnCalendar") {
		c, err := parseCalendar(text)
		if err != nil {
			j.lose("OnCalendar=%s", err)
			continue
		}
		out = append(out, c)
	}

	monotonic := false
	for _, key := range []string{"OnUnitActiveSec", "OnUnitInactiveSec"} {
		for _, text := range t.timer.all("Timer", key) {
			d, err := parseSpan(text)
			if err != nil || d <= 0 {
				j.lose("%s=%s is not understood", key, shown(text))
				continue
			}
			if monotonic {
				j.lose("%s=%s: it has another length of time already", key, shown(text))
				continue
			}
			monotonic = true
			j.setEvery(d)
			j.remark("%s=%s is counted from one start to the next, and not from the last run", key, shown(text))
		}
	}
	for _, key := range []string{"OnBootSec", "OnStartupSec", "OnActiveSec"} {
		for _, text := range t.timer.all("Timer", key) {
			monotonic = true
			j.set("run_on_start", true)
			j.remark("%s=%s is each start of the daemon here, at once", key, shown(text))
		}
	}
	for _, key := range []string{"OnClockChange", "OnTimezoneChange"} {
		if v := t.timer.last("Timer", key); isTrue(v) {
			j.lose("%s=%s: a clock that is set starts nothing here", key, shown(v))
		}
	}

	if isTrue(t.timer.last("Timer", "Persistent")) {
		j.set("on_miss", "run_once")
	}
	if delay := t.timer.last("Timer", "RandomizedDelaySec"); delay != "" {
		if d, err := parseSpan(delay); err != nil {
			j.lose("RandomizedDelaySec=%s is not understood", shown(delay))
		} else if d > 0 {
			j.set("jitter", text.FormatSpan(d))
			t.timer.all("Timer", "FixedRandomDelay") // jitter is always fixed in rouse
		}
	}
	for _, text := range t.timer.all("Timer", "AccuracySec") {
		j.remark("AccuracySec=%s: it fires to the second", shown(text))
	}
	if len(out) == 0 && monotonic {
		out = []calendar{{}}
	}
	return out
}

// work converts the service. It returns false if the service cannot be a job.
func (t *timer) work(j *Job) bool {
	s := t.service
	var env environment
	for _, text := range s.all("Service", "Environment") {
		words, err := splitWords(text)
		if err != nil {
			j.lose("Environment=%s: %s", shown(text), err)
		}
		for _, word := range words {
			name, value, found := strings.Cut(t.specifiers(j, word), "=")
			if !found || !variableName.MatchString(name) {
				j.lose("Environment=%s is no variable", shown(word))
				continue
			}
			env = env.with(name, value)
		}
	}
	for _, text := range s.all("Service", "EnvironmentFile") {
		j.lose("EnvironmentFile=%s is not read: put what is no secret before the command (env NAME=VALUE), and secrets into rouse secrets set", shown(text))
	}
	for _, key := range []string{"User", "Group", "DynamicUser"} {
		for _, text := range s.all("Service", key) {
			j.lose("%s=%s: here it has your rights", key, shown(text))
		}
	}

	j.worksIn("WorkingDirectory=", strings.TrimPrefix(t.specifiers(j, s.last("Service", "WorkingDirectory")), "-"))
	for _, key := range []string{"TimeoutStartSec", "TimeoutSec", "RuntimeMaxSec"} {
		for _, text := range s.all("Service", key) {
			if d, err := parseSpan(text); err == nil && d > 0 {
				j.set("bounds", wall(d))
			} else if text != "infinity" && text != "0" {
				j.lose("%s=%s is not understood", key, shown(text))
			}
		}
	}
	if kind := s.last("Service", "Type"); !slices.Contains([]string{"", "oneshot", "simple", "exec"}, kind) {
		j.lose("Type=%s: a run is over when its program is", shown(kind))
	}

	for _, key := range []string{"ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost"} {
		for _, line := range s.all("Service", key) {
			if key == "ExecCondition" {
				j.lose("ExecCondition=%s: whether it runs is not asked; a when: with a command does", shown(line))
				continue
			}
			if !t.exec(j, key, line, env) {
				return false
			}
		}
	}
	t.exits(j)
	j.startedIn("/, or in the home folder where it was a unit of a user")
	if len(j.calls) == 0 {
		j.lose("%s starts no program", s.name)
	}
	return len(j.calls) > 0
}

func (t *timer) exec(j *Job, key, line string, env environment) bool {
	ignore, literalVariables := false, false
	for line != "" && strings.ContainsRune("@-:+!|", rune(line[0])) {
		switch line[0] {
		case '-':
			ignore = true
		case ':':
			literalVariables = true
		default:
			word, _, _ := strings.Cut(line[1:], " ")
			j.lose("the %c before %s of %s is not carried over", line[0], shown(word), key)
		}
		line = strings.TrimSpace(line[1:])
	}

	words, err := splitWords(line)
	if err != nil {
		j.lose("%s=%s: %s", key, shown(line), err)
		return false
	}
	for len(words) > 0 {
		part, rest := words, []string(nil)
		if end := slices.Index(words, ";"); end >= 0 { // separates commands on one line
			part, rest = words[:end], words[end+1:]
		}
		if words = rest; len(part) == 0 {
			continue
		}
		argv, ok := t.arguments(j, part, env, literalVariables)
		if !ok {
			return false
		}
		if !j.command(join(argv), env) {
			j.lose("%s=%s cannot be a command", key, shown(line))
			return false
		}
		if ignore {
			j.calls[len(j.calls)-1].on = "continue"
		}
	}
	return true
}

// exits sets the exit codes that count as success.
func (t *timer) exits(j *Job) {
	for _, text := range t.service.all("Service", "SuccessExitStatus") {
		codes := []int{0}
		for word := range strings.FieldsSeq(text) {
			n, err := number(word, 0, 255)
			if err != nil {
				j.lose("SuccessExitStatus=%s: a success is told by numbers here", shown(word))
				continue
			}
			codes = append(codes, n)
		}
		for i := range j.calls {
			j.calls[i].exits = codes
		}
	}
}

// arguments expands specifiers and variables.
func (t *timer) arguments(j *Job, words []string, env environment, literalVariables bool) (argv []string, ok bool) {
	for _, word := range words {
		word = t.specifiers(j, word)
		if literalVariables || !strings.Contains(word, "$") {
			argv = append(argv, word)
			continue
		}
		filled, whole := fillVariables(j, word, env)
		if whole { // a bare $NAME becomes one word per word of its value
			argv = append(argv, strings.Fields(filled)...)
		} else {
			argv = append(argv, filled)
		}
	}
	return argv, len(argv) > 0 && argv[0] != ""
}

// fillVariables expands ${NAME}. It expands $NAME only if the word consists of nothing else, and
// then whole is true.
func fillVariables(j *Job, word string, env environment) (filled string, whole bool) {
	value := func(name string) string {
		for _, v := range env {
			if v.name == name {
				return v.value
			}
		}
		j.lose("the variable %s is not set in the unit, and left empty", name)
		return ""
	}
	if name, ok := strings.CutPrefix(word, "$"); ok && variableName.MatchString(name) {
		return value(name), true
	}

	var b strings.Builder
	for rest := word; rest != ""; {
		before, after, found := strings.Cut(rest, "$")
		b.WriteString(before)
		if !found {
			break
		}
		name, behind, closed := strings.Cut(strings.TrimPrefix(after, "{"), "}")
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			rest = after[1:]
		case strings.HasPrefix(after, "{") && closed && variableName.MatchString(name):
			b.WriteString(value(name))
			rest = behind
		default:
			b.WriteByte('$')
			rest = after
		}
	}
	return b.String(), false
}

// specifiers expands % specifiers as far as their values are known.
func (t *timer) specifiers(j *Job, text string) string {
	if !strings.Contains(text, "%") {
		return text
	}

	full := t.service.name
	if base, end, template := strings.Cut(full, "@."); template {
		full = base + "@" + t.instance + "." + end
	}
	name := strings.TrimSuffix(full, ".service")
	prefix, _, _ := strings.Cut(name, "@")
	known := map[byte]string{'%': "%", 'n': full, 'N': name, 'p': prefix, 'i': t.instance, 'I': strings.ReplaceAll(t.instance, "-", "/"), 'h': t.Home, 'u': t.User}

	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		value, ok := known[text[i]]
		switch {
		case !ok || value == "" && (text[i] == 'h' || text[i] == 'u'):
			j.lose("%%%c in %s is not filled in", text[i], shown(text))
			b.WriteString(text[i-1 : i+1])
		case text[i] == 'h' || text[i] == 'u':
			j.remark("%%%c is taken for %s", text[i], value)
			b.WriteString(value)
		default:
			b.WriteString(value)
		}
	}
	return b.String()
}

// harmlessDirectives lists directives that neither decide whether a unit runs nor change its
// behavior.
var harmlessDirectives = strings.Fields(strings.ToLower(`Description Documentation After Before Wants DefaultDependencies SourcePath
	RemainAfterElapse FixedRandomDelay RemainAfterExit GuessMainPID StandardOutput StandardError SyslogIdentifier SyslogFacility SyslogLevel SyslogLevelPrefix LogLevelMax TTYPath
	KillMode KillSignal SendSIGHUP SendSIGKILL FinalKillSignal TimeoutStopSec TimeoutAbortSec StartLimitIntervalSec StartLimitInterval StartLimitBurst
	Nice IOSchedulingClass IOSchedulingPriority CPUSchedulingPolicy CPUSchedulingPriority CPUSchedulingResetOnFork CPUAffinity OOMScoreAdjust OOMPolicy Slice Delegate
	CPUAccounting CPUWeight StartupCPUWeight CPUQuota CPUQuotaPeriodSec MemoryAccounting MemoryMin MemoryLow MemoryHigh MemoryMax MemorySwapMax TasksAccounting TasksMax
	IOAccounting IOWeight BlockIOWeight IPAccounting LimitCPU LimitFSIZE LimitDATA LimitSTACK LimitCORE LimitRSS LimitNOFILE LimitAS LimitNPROC LimitMEMLOCK LimitNICE
	PrivateTmp PrivateDevices PrivateNetwork PrivateUsers PrivateIPC PrivateMounts ProtectSystem ProtectHome ProtectKernelTunables ProtectKernelModules ProtectKernelLogs
	ProtectControlGroups ProtectClock ProtectHostname ProtectProc ProcSubset NoNewPrivileges RestrictAddressFamilies RestrictNamespaces RestrictRealtime RestrictSUIDSGID
	RestrictFileSystems SystemCallFilter SystemCallArchitectures SystemCallErrorNumber SystemCallLog LockPersonality MemoryDenyWriteExecute CapabilityBoundingSet
	ReadWritePaths ReadOnlyPaths InaccessiblePaths NoExecPaths ExecPaths DevicePolicy DeviceAllow IPAddressDeny KeyringMode RemoveIPC`))

// leftOver adds a remark for each directive that was not used. A directive not known to be harmless
// disables the job.
func (t *timer) leftOver(j *Job) {
	for _, u := range []*unit{t.timer, t.service} {
		for _, d := range u.rest() {
			said := fmt.Sprintf("not carried over: %s: [%s] %s=%s", u.name, d.section, d.key, shown(d.value))
			if d.section == "Install" || d.key == "WakeSystem" && !isTrue(d.value) {
				j.remark("%s", said)
				continue
			}
			j.leave(d.key, harmlessDirectives, "%s", said)
		}
	}
}
