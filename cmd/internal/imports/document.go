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

// Document holds the result of an import, in the order of the files.
type Document struct {
	From     string    // crontab, systemd, dagu, openclaw
	Defaults []setting // settings of all jobs that match the other scheduler
	Notes    []string  // comments at the head of the file
	items    []item
	names    map[string]bool
}

// item is a job, or a comment if no job could be created.
type item struct {
	job     *Job
	comment []string
}

// setting is a key of a job or of the defaults.
type setting struct {
	key    string
	value  any    // string, bool, int, []string or raw
	remark string // reason, as a comment at the end of the line
}

// raw is YAML written as is. Text from an imported file must be quoted before it becomes part of
// one.
type raw string

// Job is an imported job.
type Job struct {
	Name    string
	Source  []string // lines of the imported file
	Kept    []string // comments of the imported file
	Remarks []string // differences and settings that were not imported
	Off     bool     // disabled because of a remark

	settings []setting
	calls    []call
	when     []string // conditions, as YAML
	prompt   string

	executor    []string // argv of the coding agent that runs the prompt
	executorEnv environment

	agent        string // name of the agent; "" for the shared agent
	instructions string // instructions of the agent
	uses         string // final name of the agent
	whole        string // full definition in the imported file, if Source does not contain it
	refused      string // reason why the job cannot be imported
	dir          string // workdir; "" for the agent's own
	grants       [][]string
	relative     []string // command arguments that are relative paths
}

// call is a call of a playbook. It sends a notice if it has a title; otherwise it runs a command.
type call struct {
	command string
	title   string
	body    string
	on      string // value of on_error
	exits   []int  // exit codes that count as success
}

// NewDocument returns an empty document with the given notes.
func NewDocument(from string, notes ...string) *Document {
	head := "Written by rouse import " + from + ". What could not be carried over stands at its job; a job that lacks something is off."
	return &Document{From: from, Notes: append([]string{head}, notes...), names: map[string]bool{}}
}

// Jobs returns the imported jobs.
func (d *Document) Jobs() (out []*Job) {
	for _, it := range d.items {
		if it.job != nil {
			out = append(out, it.job)
		}
	}
	return out
}

// Comments returns the number of jobs that became comments because they could not be imported.
func (d *Document) Comments() (n int) {
	for _, it := range d.items {
		if it.job == nil && len(it.comment) > 0 && strings.HasPrefix(it.comment[0], notCarried) {
			n++
		}
	}
	return n
}

// notCarried is the prefix of a comment that replaces a job.
const notCarried = "not carried over: "

func (d *Document) add(j *Job) {
	j.Name = d.unique(j.Name)
	d.items = append(d.items, item{job: j})
}

// note adds lines as a comment.
func (d *Document) note(lines ...string) { d.items = append(d.items, item{comment: lines}) }

// refuse adds a comment for a job that cannot be imported.
func (d *Document) refuse(why string, source ...string) {
	d.items = append(d.items, item{comment: append([]string{notCarried + why}, source...)})
}

// remark adds a remark about a difference. The job stays enabled.
func (j *Job) remark(format string, args ...any) {
	if said := fmt.Sprintf(format, args...); !slices.Contains(j.Remarks, said) {
		j.Remarks = append(j.Remarks, said)
	}
}

// lose adds a remark about an important loss and disables the job, so that the owner reviews it
// first.
func (j *Job) lose(format string, args ...any) {
	j.Off = true
	j.remark(format, args...)
}

// leave adds a remark about a key that was not imported. It disables the job unless the key is
// listed in harmless.
func (j *Job) leave(key string, harmless []string, format string, args ...any) {
	if slices.Contains(harmless, strings.ToLower(strings.ReplaceAll(key, "_", ""))) {
		j.remark(format, args...)
		return
	}
	j.lose(format, args...)
}

// leaveRest calls leave for each key of a node that was not read.
func (j *Job) leaveRest(n *node, harmless []string, about string) {
	for _, said := range n.rest() {
		key, _, _ := strings.Cut(said, ":")
		j.leave(key, harmless, "not carried over: %s%s", about, shown(said))
	}
}

// variable adds a variable to an environment. If the name is not valid, it adds a remark instead.
func (j *Job) variable(env environment, name, value string) environment {
	if !variableName.MatchString(name) {
		j.lose("the variable %s has no name that a program can have", shown(name))
		return env
	}
	return env.with(name, value)
}

// worksIn sets the workdir of a job. If dir is relative, it adds a remark instead.
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

// nameOf derives a valid name from a text. If no characters remain, it returns other.
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

// unique makes a name unique, ignoring case: names become directories.
func (d *Document) unique(name string) string {
	out := name
	for n := 2; d.names[strings.ToLower(out)]; n++ {
		out = name + "-" + strconv.Itoa(n)
	}
	d.names[strings.ToLower(out)] = true
	return out
}

// withheld matches an assignment that looks like a secret. The imported configuration must not
// spread secrets.
var withheld = regexp.MustCompile(`(?i)([A-Za-z_]*(?:key|secret|token|passw|credential)[A-Za-z0-9_]*["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,"'}\]]+)`)

// where formats a line of a file with its position.
func where(file string, line int, said string) string {
	return fmt.Sprintf("%s:%d: %s", path.Base(strings.ReplaceAll(file, `\`, "/")), line, withheld.ReplaceAllString(said, "$1(withheld)"))
}

// shown formats a text for a remark: on one line and with limited length.
func shown(s string) string {
	s = withheld.ReplaceAllString(s, "$1(withheld)")
	return text.Truncate(strings.ReplaceAll(text.Visible(s), "\n", `\n`), maxShown)
}

// maxShown is the maximum length of a value in a remark, in characters.
const maxShown = 2000
