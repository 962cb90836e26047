package imports

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"rouse/internal/text"
)

var agentDefaults = []setting{
	{"on_miss", "run_once", "as its gateway does when it starts again"},
	{"overlap", "skip", ""},
}

// harmlessPayload lists the keys that neither restrict a job nor change its behavior.
var harmlessPayload = []string{"thinking", "fallbacks", "lightcontext", "besteffortdeliver", "channel", "to"}

// OpenClaw reads the cron jobs of an OpenClaw gateway (~/.openclaw/cron/jobs.json) and HEARTBEAT.md
// files.
func OpenClaw(files []File) (*Document, error) {
	d := NewDocument("openclaw", "",
		"Each run begins without a conversation: say in the prompt, or in the agent's instructions, what it has to know.",
		"Name a model under models:, or set a key in the environment; without one these jobs wait. docs/guides/coming-from-cron.md says more.",
		"")
	d.Defaults = agentDefaults
	for _, f := range files {
		if strings.EqualFold(path.Ext(f.Name), ".md") {
			d.heartbeat(f)
			continue
		}
		root, err := parseJSON(f.Text)
		if err != nil {
			return nil, fmt.Errorf("%s is not the JSON of cron jobs: %w", f.Name, err)
		}
		jobs := root.get("jobs")
		if root.kind == 'l' { // possible output of openclaw cron list --json
			jobs = root
		}
		if jobs == nil || jobs.kind != 'l' {
			return nil, fmt.Errorf("%s holds no list of jobs", f.Name)
		}
		// These keys belong to the list, not to its jobs.
		for _, known := range []string{"version", "total", "offset", "limit", "hasMore", "nextOffset"} {
			root.get(known)
		}
		for _, n := range jobs.items {
			d.claw(f, n, root.rest())
		}
	}

	return d, nil
}

// claw adds one cron job. unknown holds the unknown keys of the whole file.
func (d *Document) claw(f File, n *node, unknown []string) {
	source := []string{where(f.Name, n.line, shown(n.short()))}
	if n.kind != 'm' || len(d.items) >= MaxJobs {
		d.refuse("it is no job, or there are more than "+strconv.Itoa(MaxJobs), source...)
		return
	}

	name := n.get("name").str()
	id := n.get("id", "jobId").str()
	j := &Job{Name: nameOf(name, nameOf(id, "job")), Source: []string{where(f.Name, n.line, "cron job "+shown(name)+" ("+shown(id)+")")}, agent: nameOf(n.get("agentId").str(), "claw"), whole: shown(n.short())}
	if text := n.get("description").str(); text != "" {
		j.Kept = append(j.Kept, text)
	}
	if on := n.get("enabled"); on != nil && !on.is() {
		j.Off = true
		j.remark("it was off there too")
	}
	// State of the other program.
	for _, known := range []string{"createdAtMs", "updatedAtMs", "state"} {
		n.get(known)
	}

	if why := j.clawTime(n.get("schedule")); why != "" {
		d.refuse(why, source...)
		return
	}
	if why := j.clawWork(n.get("payload")); why != "" {
		d.refuse(why, source...)
		return
	}
	j.clawSession(n)
	j.clawDelivery(n)
	if n.get("trigger") != nil {
		j.lose("its trigger, a script that decides before each run, is not carried over; without it each run asks a model and costs money: write it as when: [{command: [...]}], then enable the job")
	}
	j.leaveRest(n, nil, "")
	for _, said := range unknown {
		j.lose("not carried over: %s", shown(said))
	}
	d.add(j)
}

// clawTime converts the schedule of a job. If it cannot, it returns the reason.
func (j *Job) clawTime(s *node) (why string) {
	if s == nil {
		return "it has no schedule"
	}

	kind := s.get("kind").str()
	switch kind {
	case "cron":
		expression := s.get("expr", "cron").str()
		if expression == "" {
			return "its schedule has no expression"
		}
		j.set("schedule", expression)
		if zone := s.get("tz").str(); zone != "" {
			j.set("timezone", zone)
		}
		if ms := millis(s.get("staggerMs")); ms > 0 {
			j.set("jitter", text.FormatSpan(ms))
		}
	case "every":
		ms := millis(s.get("everyMs"))
		if ms <= 0 {
			return "its length of time is no number"
		}
		j.setEvery(ms)
		if s.get("anchorMs") != nil {
			j.remark("it was counted from a moment of its own (anchorMs)")
		}
	case "at":
		at, err := clawMoment(s)
		if err != nil {
			return err.Error()
		}
		j.set("at", at)
	default:
		return "schedules of kind " + shown(kind) + " are not known"
	}

	j.leaveRest(s, nil, "schedule: ")
	return ""
}

// clawMoment returns the time of a schedule of kind "at". Without a time zone, the time is in UTC.
func clawMoment(s *node) (string, error) {
	if ms := millis(s.get("atMs")); ms > 0 {
		return time.UnixMilli(ms.Milliseconds()).UTC().Format(time.RFC3339), nil
	}
	text := s.get("at").str()
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 && n < 1<<52 {
		return time.UnixMilli(n).UTC().Format(time.RFC3339), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.Format(time.RFC3339), nil
		}
	}
	return "", fmt.Errorf("its moment %s is not understood", shown(text))
}

func millis(n *node) time.Duration {
	ms, err := strconv.ParseInt(n.str(), 10, 64)
	if err != nil || ms < 0 || ms > 1<<43 {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

func (j *Job) clawWork(p *node) (why string) {
	kind := p.get("kind").str()
	switch kind {
	case "systemEvent":
		if j.prompt = p.get("text").str(); strings.TrimSpace(j.prompt) == "" {
			return "its text is empty"
		}
	case "agentTurn":
		if j.prompt = p.get("message", "text").str(); strings.TrimSpace(j.prompt) == "" {
			return "its message is empty"
		}
		if model := p.get("model").str(); model != "" {
			j.remark("it asked the model %s: name it under models:, and here as model:", shown(model))
		}
	case "command":
		if !j.clawCommand(p) {
			return strings.Join(j.Remarks, "; ")
		}
	default:
		return "payloads of kind " + shown(kind) + " are not known"
	}

	if seconds, err := strconv.ParseFloat(p.get("timeoutSeconds").str(), 64); err == nil && seconds >= 1 && seconds < 1e7 {
		j.set("bounds", raw("{wall: "+text.FormatSpan(time.Duration(seconds)*time.Second)+"}"))
	}
	if n := p.get("deliver"); n.is() {
		j.lose("what it answers was delivered to %s; here a notice has it, see notify", shown(strings.TrimSpace(p.get("channel").str()+" "+p.get("to").str())))
	}
	j.leaveRest(p, harmlessPayload, "payload: ")
	return ""
}

// clawCommand converts a payload that runs a program, given as an argv or as a program with args.
func (j *Job) clawCommand(p *node) bool {
	var argv []string
	if c := p.get("argv", "command"); c != nil {
		for _, word := range c.list() {
			argv = append(argv, word.str())
		}
	}
	for _, word := range p.get("args").list() {
		argv = append(argv, word.str())
	}
	var env environment
	if e := p.get("env"); e != nil && e.kind == 'm' {
		for i, name := range e.keys {
			env = j.variable(env, name, e.items[i].str())
		}
	}
	j.worksIn("it worked in ", p.get("cwd").str())
	if len(argv) == 0 || argv[0] == "" {
		j.lose("it names no program")
		return false
	}

	ok := j.command(join(argv), env)
	j.startedIn("the folder of its agent")
	return ok
}

// clawSession reports differences in the conversation a job runs in.
func (j *Job) clawSession(n *node) {
	switch session := n.get("sessionTarget").str(); {
	case session == "" || session == "isolated":
	case strings.HasPrefix(session, "session:") || session == "main" || session == "current":
		j.lose("it was said within the conversation %s; here each run begins without one; with session: keep its runs go on from one another", shown(session))
	default:
		j.lose("its session %s is not known", shown(session))
	}
	if n.get("sessionKey") != nil {
		j.remark("the key of its session is not carried over")
	}
	if n.get("wakeMode").str() == "next-heartbeat" {
		j.remark("it waited for the next heartbeat; here it runs when it is due")
	}
	if n.get("deleteAfterRun") != nil {
		j.remark("deleteAfterRun: what runs once stays in this file, and in the history")
	}
}

// clawDelivery converts the delivery of a job's answer.
func (j *Job) clawDelivery(n *node) {
	if alert := n.get("failureAlert"); alert != nil && alert.short() != "false" {
		j.remark("failureAlert %s: notify tells of errors", shown(alert.short()))
	}
	delivery := n.get("delivery")
	switch {
	case delivery == nil:
		return
	case delivery.get("mode").str() == "none":
		j.set("notify", raw("{on: [failure, waiting]}"))
		j.leaveRest(delivery, []string{"channel", "to", "accountid", "threadid", "besteffort"}, "delivery: ")
		return
	}
	j.lose("what it answers went to %s: name a channel under notifications: (docs/guides/notifications.md) and here as notify: {channels: [NAME]}; without that it is a notice on the desktop", shown(delivery.short()))
}

var (
	taskBlock    = regexp.MustCompile(`^tasks:\s*$`)
	mdDecoration = regexp.MustCompile(`^(#.*|<!--.*-->|\s*[-*+]\s*(\[[ xX]?\])?\s*)?$`)
)

// heartbeat reads a HEARTBEAT.md. It adds one job for the whole file, or one job per task if the
// file has tasks.
func (d *Document) heartbeat(f File) {
	tasks, rest, err := splitTasks(f.Text)
	if err != nil {
		d.note(path.Base(f.Name) + ": its tasks: are not understood, so that the agent reads the file as it is: " + err.Error())
		tasks, rest = nil, f.Text
	}

	empty := true
	for line := range strings.SplitSeq(rest, "\n") {
		empty = empty && mdDecoration.MatchString(strings.TrimSpace(line))
	}
	for _, t := range tasks {
		d.heartbeatTask(f, t, rest, empty)
	}
	if empty && len(tasks) == 0 {
		d.note(append([]string{path.Base(f.Name) + " holds nothing to do"}, strings.Split(f.Text, "\n")...)...)
	}
	if !empty && len(tasks) == 0 {
		j := &Job{Name: "heartbeat", Source: []string{path.Base(f.Name)}, agent: "claw", prompt: strings.TrimSpace(rest)}
		j.set("every", "30m")
		j.remark("30m is what a heartbeat is unless agents.defaults.heartbeat.every of openclaw.json says otherwise")
		d.heartbeatEnd(j)
	}
}

// splitTasks returns the tasks of the block "tasks:" and the text without that block.
func splitTasks(text string) (tasks []*node, rest string, err error) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !taskBlock.MatchString(line) {
			continue
		}
		end := i + 1
		for end < len(lines) && (strings.TrimSpace(lines[end]) == "" || strings.HasPrefix(lines[end], " ") || strings.HasPrefix(lines[end], "- ") || strings.HasPrefix(lines[end], "\t")) {
			end++
		}
		docs, err := parseYAML(strings.Join(lines[i:end], "\n"))
		if err != nil {
			return nil, text, err
		}
		if len(docs) != 1 {
			return nil, text, fmt.Errorf("they are no list")
		}
		return docs[0].get("tasks").list(), strings.Join(append(lines[:i:i], lines[end:]...), "\n"), nil
	}
	return nil, text, nil
}

func (d *Document) heartbeatTask(f File, t *node, rest string, empty bool) {
	source := path.Base(f.Name) + ": task " + shown(t.short())
	prompt := t.get("prompt").str()
	every, err := clawInterval(t.get("interval", "every").str())
	if prompt == "" || err != nil {
		d.refuse("a task needs a prompt and an interval", source)
		return
	}
	j := &Job{Name: nameOf(t.get("name").str(), "task"), Source: []string{source}, agent: "claw", prompt: prompt}
	if !empty {
		j.instructions = strings.TrimSpace(rest)
	}
	j.setEvery(every)
	j.leaveRest(t, nil, "")
	d.heartbeatEnd(j)
}

func (d *Document) heartbeatEnd(j *Job) {
	j.remark("an answer HEARTBEAT_OK meant that there is nothing to say; here complete with the outcome nothing does, and notifies nobody")
	j.lose("it was said within the main conversation; here each run begins without one; with session: keep its runs go on from one another")
	d.add(j)
}

// clawInterval parses a duration. Plain numbers are minutes.
func clawInterval(text string) (time.Duration, error) {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 1e6 {
		return time.Duration(n) * time.Minute, nil
	}
	d, err := parseSpan(text)
	if err == nil && d <= 0 {
		err = fmt.Errorf("no length of time")
	}
	return d, err
}
