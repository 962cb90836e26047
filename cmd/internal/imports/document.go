package imports

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"rouse/internal/text"
)

// Document is what a reader found, in the order of its files.
type Document struct {
	From     string    // crontab, systemd, dagu, openclaw
	Defaults []setting // what all jobs have, as the other scheduler does it
	Notes    []string  // for the head of the file
	items    []item
	names    map[string]bool
}

// item is a job, or a comment where none could be made.
type item struct {
	job     *Job
	comment []string
}

// setting is one key of a job or of the defaults.
type setting struct {
	key    string
	value  any    // string, bool, int, []string or raw
	remark string // why, at the end of the line
}

// raw is YAML that is written as it is; it never holds anything of a stranger that was not quoted.
type raw string

// Job is one job that was found.
type Job struct {
	Name    string
	Source  []string // where it comes from, and what it said there
	Kept    []string // comments of the other file
	Remarks []string // what could not be carried over, or is different
	Off     bool     // because of a remark

	settings []setting
	calls    []call
	when     []string // conditions, as YAML
	prompt   string

	executor    []string // argv of the coding agent that runs the prompt
	executorEnv environment

	agent        string // name of its agent, "" for the one that all share
	instructions string // of its agent
	uses         string // the name that its agent got
	whole        string // all that the other file says of it, where Source does not
	refused      string // why it cannot be a job at all
	dir          string // its workdir, "" for the agent's own
	grants       [][]string
	relative     []string // words of its commands that name a file from the working folder on
}

// call is one call of a playbook. It sends a notice if it has a title, and runs a command otherwise.
type call struct {
	command string
	title   string
	body    string
	on      string // on_error
	exits   []int  // that are a success
}

// NewDocument returns an empty document with notes.
func NewDocument(from string, notes ...string) *Document {
	head := "Written by rouse import " + from + ". What could not be carried over stands at its job; a job that lacks something is off."
	return &Document{From: from, Notes: append([]string{head}, notes...), names: map[string]bool{}}
}

// Jobs are the jobs that were found.
func (d *Document) Jobs() (out []*Job) {
	for _, it := range d.items {
		if it.job != nil {
			out = append(out, it.job)
		}
	}
	return out
}

// Comments are how many things became a comment because no job could be made of them.
func (d *Document) Comments() (n int) {
	for _, it := range d.items {
		if it.job == nil && len(it.comment) > 0 && strings.HasPrefix(it.comment[0], notCarried) {
			n++
		}
	}
	return n
}

// notCarried begins the comment that stands for a job.
const notCarried = "not carried over: "

func (d *Document) add(j *Job) {
	j.Name = d.unique(j.Name)
	d.items = append(d.items, item{job: j})
}

// note keeps lines that are no job.
func (d *Document) note(lines ...string) { d.items = append(d.items, item{comment: lines}) }

// refuse keeps what should be a job and cannot be one.
func (d *Document) refuse(why string, source ...string) {
	d.items = append(d.items, item{comment: append([]string{notCarried + why}, source...)})
}

// remark says what is different, and changes nothing.
func (j *Job) remark(format string, args ...any) {
	if said := fmt.Sprintf(format, args...); !slices.Contains(j.Remarks, said) {
		j.Remarks = append(j.Remarks, said)
	}
}

// lose says what is lost and matters, so that its owner has to look at the job before it runs.
func (j *Job) lose(format string, args ...any) {
	j.Off = true
	j.remark(format, args...)
}

// leave reports a key that is not carried over. Unless it is harmless, the job is off.
func (j *Job) leave(key string, harmless []string, format string, args ...any) {
	if slices.Contains(harmless, strings.ToLower(strings.ReplaceAll(key, "_", ""))) {
		j.remark(format, args...)
		return
	}
	j.lose(format, args...)
}

// leaveRest tells of all keys of a node that are not carried over.
func (j *Job) leaveRest(n *node, harmless []string, about string) {
	for _, said := range n.rest() {
		key, _, _ := strings.Cut(said, ":")
		j.leave(key, harmless, "not carried over: %s%s", about, shown(said))
	}
}

// variable adds a variable to an environment. It reports a name that no program can have.
func (j *Job) variable(env environment, name, value string) environment {
	if !variableName.MatchString(name) {
		j.lose("the variable %s has no name that a program can have", shown(name))
		return env
	}
	return env.with(name, value)
}

// worksIn sets the workdir of a job. It reports a relative one.
func (j *Job) worksIn(what, dir string) {
	switch {
	case path.IsAbs(dir):
		j.dir = path.Clean(dir)
	case dir != "":
		j.lose("%s%s, which is no path from the root on", what, shown(dir))
	}
}

func (j *Job) set(key string, value any) {
	if i := slices.IndexFunc(j.settings, func(s setting) bool { return s.key == key }); i >= 0 {
		j.settings[i].value = value
		return
	}
	j.settings = append(j.settings, setting{key: key, value: value})
}

var (
	notName    = regexp.MustCompile(`[^A-Za-z0-9_-]+`)
	deviceName = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])$`)
)

const maxName = 56

// nameOf makes a name of any text; "" gives the other.
func nameOf(text, other string) string {
	name := strings.Trim(notName.ReplaceAllString(text, "-"), "-_")
	if len(name) > maxName {
		name = strings.Trim(name[:maxName], "-_")
	}
	if name == "" {
		return other
	}
	if deviceName.MatchString(name) {
		return name + "-job"
	}
	return name
}

// unique tells names apart that differ in case alone too: they become folders.
func (d *Document) unique(name string) string {
	out := name
	for n := 2; d.names[strings.ToLower(out)]; n++ {
		out = name + "-" + strconv.Itoa(n)
	}
	d.names[strings.ToLower(out)] = true
	return out
}

// withheld is a setting of a variable whose value looks like a secret: a file that is made of another one must not spread it.
var withheld = regexp.MustCompile(`(?i)([A-Za-z_]*(?:key|secret|token|passw|credential)[A-Za-z0-9_]*["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,"'}\]]+)`)

// where is a line of a file, as people write it.
func where(file string, line int, said string) string {
	return fmt.Sprintf("%s:%d: %s", path.Base(strings.ReplaceAll(file, `\`, "/")), line, withheld.ReplaceAllString(said, "$1(withheld)"))
}

// shown is a text in a remark: one line, and not without end.
func shown(s string) string {
	s = withheld.ReplaceAllString(s, "$1(withheld)")
	return text.Truncate(strings.ReplaceAll(text.Visible(s), "\n", `\n`), maxShown)
}

// maxShown is how much of a strange value is shown, in characters.
const maxShown = 2000
