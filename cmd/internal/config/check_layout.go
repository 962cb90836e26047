package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/cmd/internal/layout"
	"rouse/internal/fspath"
	"rouse/internal/nofollow"
	"rouse/internal/text"
)

// place is a folder in which others than the owner write, now or while its agent was enabled.
type place struct {
	key    string // of the setting that opens it: agents[0].workdir
	who    string // and what they do there: the agent clerk may write in
	mend   string
	folder string // as configured
	// program is the agent whose executor writes there, and which writes there by nothing else; "" for others.
	program string
}

// trusted is a file or a folder that the host believes: whoever writes it decides what the host does.
type trusted struct {
	what  string
	path  string
	at    Position // of the setting that names it; its line is 0 where none does
	whole bool     // all that lies in it is believed, so that nobody else may write in a part of it
	mend  string   // what can be done about it; "": keep it elsewhere
}

func (t trusted) String() string {
	said := fmt.Sprintf("%s %s", t.what, display(t.path))
	if t.at.Line > 0 {
		said += fmt.Sprintf(" (%s)", t.at)
	}
	return said
}

// places are the folders in which agents write and strangers leave files.
func (c *Config) places() (out []place) {
	for key, a := range each("agents", c.Agents) {
		who := fmt.Sprintf("the agent %s may write in", a.Name)
		for at, folder := range each(key+".grants.write", a.Grants.Write) {
			out = append(out, place{at, who, "grant it a folder that holds nothing else", string(*folder), ""})
		}
		if len(a.Grants.Write) == 0 && a.Workdir != "" {
			out = append(out, place{key + ".workdir", who, "give the agent a workdir of its own, or narrow it with grants: {write: [./out]}", string(a.Workdir), ""})
		}
	}

	for key, j := range each("jobs", c.Jobs) {
		if w := j.Watch; w != nil {
			const mend = "choose a folder that is for such files alone"
			out = append(out, place{key + ".watch.path", "whoever drops files may write in", mend, string(w.Path), ""},
				place{key + ".watch.on_success", "files of others are moved to", mend, w.OnSuccess.Dir, ""},
				place{key + ".watch.on_failure", "files of others are moved to", mend, w.OnFailure.Dir, ""})
		}
	}

	for _, e := range c.executors() {
		for _, folder := range e.writes() {
			out = append(out, place{e.path, fmt.Sprintf("the executor of %s may write in", e.agent), "choose a folder for it alone", folder, e.agent})
		}
	}

	return slices.DeleteFunc(out, func(p place) bool { return p.folder == "" })
}

// writerOf returns a place that holds a folder or lies in it, so that others may write there, or
// nil. Places of the executor of the agent except do not count.
func (c *Config) writerOf(folder, except string) *place {
	glance := nofollow.NewGlance()
	for _, p := range c.places() {
		own := except != "" && p.program == except
		if !own && (holds(glance.Boundary(p.folder), folder) || holds(glance.Boundary(folder), ownersPath(p.folder, glance))) {
			return &p
		}
	}
	return nil
}

// String describes the place as part of a sentence, "" if it is nil.
func (p *place) String() string {
	if p == nil {
		return ""
	}
	return p.who + " " + display(p.folder)
}

// ownersFolder refuses a path that decides what a trusted program does, if others can write there.
// Writes by the executor of an agent do not count for that executor.
func (c *checker) ownersFolder(path, folder, agent string) {
	if folder == "" {
		return
	}
	c.notOfTheHome(path, folder)
	if p := c.cfg.writerOf(folder, agent); p != nil {
		c.bad(path, "%s (%s), which is in or around %s, and so could lead the program", p, c.d.place(p.key), display(folder)).
			Hint = "choose a place that no folder of an agent lies in or holds, or " + p.mend
	}
}

// Writer describes who else may write in a folder, or returns "" if only the owner may.
func (c *Config) Writer(folder string) string { return c.writerOf(folder, "").String() }

// WriterAround is Writer for what is kept under a name of its own in a folder: who may write elsewhere in it does not matter.
func (c *Config) WriterAround(folder string) string {
	glance := nofollow.NewGlance()
	for _, p := range c.places() {
		if holds(glance.Boundary(ownersPath(p.folder, glance)), folder) {
			return p.String()
		}
	}
	return ""
}

// layout refuses what the host trusts where somebody else could write it: both are named, with their lines.
func (c *checker) layout() {
	places, all := c.cfg.places(), c.trusted()

	// Places are compared by what they are: agents write in the folder that a link leads to.
	glance := nofollow.NewGlance()
	real := make([]string, len(places))
	for i, p := range places {
		real[i] = ownersPath(p.folder, glance)
	}

	// What is trusted is followed link by link, so that neither its name nor what that stands for may lie there.
	inside := map[int][]trusted{}
	others := glance.Boundary(real...)
	for _, t := range all {
		if !holds(others, t.path) {
			continue
		}
		for i, folder := range real { // also those that the first one holds: they are mended together
			if holds(glance.Boundary(folder), t.path) {
				inside[i] = append(inside[i], t)
			}
		}
	}

	whole := slices.DeleteFunc(all, func(t trusted) bool { return !t.whole })
	for i, p := range places {
		if found := append(inside[i], c.around(real[i], whole, glance)...); len(found) > 0 {
			c.layoutProblem(&p, found)
		}
	}
}

// holds reports whether a path is a folder of the boundary, or lies in one.
func holds(b nofollow.Boundary, path string) bool {
	return b.Holds(filepath.Join(path, "any")) != ""
}

func (c *checker) layoutProblem(p *place, found []trusted) {
	var names []string
	mends := []string{p.mend}
	for _, t := range found {
		if name := t.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
		if mend := cmp.Or(t.mend, "keep what is trusted elsewhere"); !slices.Contains(mends, mend) {
			mends = append(mends, mend)
		}
	}

	c.bad(p.key, "%s, and so could change what rouse trusts: %s", p, text.List(names, 5)).Hint = strings.Join(mends, ", or ")
}

// around are the trusted things that a place lies within, or would become a part of.
func (c *checker) around(real string, whole []trusted, glance *nofollow.Glance) (out []trusted) {
	for _, t := range whole {
		if fspath.Within(strings.ToLower(real), strings.ToLower(ownersPath(t.path, glance))) { // some disks do not tell case apart
			out = append(out, t)
		}
	}

	if c.cfg.Home != "" && layout.Kept(strings.ToLower(ownersPath(string(c.cfg.Home), glance)), strings.ToLower(real)) {
		out = append(out, trusted{what: "what it keeps in its home", path: string(c.cfg.Home), at: c.d.place("home")})
	}

	for _, t := range c.d.globs {
		if _, ok := matchesInside(t.path, real); ok {
			t.what = "the configuration that is found by"
			out = append(out, t)
		}
	}
	return out
}

// ownersPath is a path with its links followed, all of which are the owner's as far as is known here.
func ownersPath(path string, glance *nofollow.Glance) string {
	if real, err := glance.Resolve(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// notOfTheHome refuses to give a program what rouse keeps in its home, links followed.
func (c *checker) notOfTheHome(path, folder string) {
	glance := nofollow.NewGlance()
	if c.cfg.Home == "" || folder == "" {
		return
	}
	home, real := strings.ToLower(ownersPath(string(c.cfg.Home), glance)), strings.ToLower(ownersPath(folder, glance))
	if real == home || layout.Kept(home, real) && !fspath.Within(real, filepath.Join(home, "skills")) {
		c.bad(path, "%s belongs to rouse itself, and no program gets to see it", display(folder)).Hint = "name another folder"
	}
}

func (c *checker) inHome(folder string) bool {
	glance := nofollow.NewGlance()
	return folder != "" && c.cfg.Home != "" && fspath.Within(ownersPath(folder, glance), ownersPath(string(c.cfg.Home), glance))
}

// trusted are the places that the host believes.
func (c *checker) trusted() []trusted {
	out := slices.Clone(c.d.trusted) // what was read for the configuration
	if c.cfg.Home != "" {
		out = append(out, trusted{what: "the home", path: string(c.cfg.Home), at: c.d.place("home")})
	}

	for _, t := range c.d.globs {
		t.what, t.path = "the configuration in", globFolder(t.path)
		out = append(out, t)
	}

	if t := c.cfg.Dashboard.TLS; t != nil {
		for key, path := range map[string]Path{"cert": t.Cert, "key": t.Key} {
			out = append(out, trusted{what: "the certificate of the dashboard", path: string(path), at: c.d.place("dashboard.tls." + key)})
		}
	}

	for _, r := range c.skillRoots {
		if r.Trusted {
			out = append(out, trusted{what: "the skills of", path: r.Path, at: c.skillRootPlace(r.Path), whole: true})
		}
	}

	for key, a := range each("agents", c.cfg.Agents) {
		for key, name := range each(key+".skills", a.Skills) {
			if isPath(*name) {
				at := c.d.place(key)
				out = append(out, trusted{what: "the skill", path: c.d.resolve(at.File, *name), at: at, whole: true})
			}
		}
	}

	for key, m := range each("models", c.cfg.Models) {
		if m.Recording != "" {
			out = append(out, trusted{what: "what a model answers, recorded in", path: string(m.Recording), at: c.d.place(key + ".recording")})
		}
	}

	for _, o := range c.cfg.checkouts() {
		if o.Repo != "" {
			out = append(out, trusted{what: "the repository of a checkout", path: string(o.Repo), at: c.d.place(o.path + ".repo"), whole: true, mend: "let no agent write in the repository"})
		}
	}

	return append(out, c.trustedPrograms()...)
}

// skillRootPlace is where a root of skills is named, without a line where nothing names it.
func (c *checker) skillRootPlace(path string) Position {
	if c.cfg.Skills != nil {
		for key, r := range each("skills.roots", c.cfg.Skills.Roots) {
			if string(r.Path) == path {
				return c.d.place(key + ".path")
			}
		}
	}
	return Position{}
}

// trustedPrograms returns the programs that the host starts, and the folders of its search path.
func (c *checker) trustedPrograms() (out []trusted) {
	if self, err := os.Executable(); err == nil {
		out = append(out, trusted{what: "the program", path: self})
	}

	search := filepath.SplitList(c.d.Getenv("PATH"))
	for _, folder := range search {
		if filepath.IsAbs(folder) { // what is found by another is not started
			out = append(out, trusted{what: "the programs of $PATH in", path: folder, mend: "take the folder off PATH"})
		}
	}

	add := func(what, key string, argv []string, folder string) {
		if len(argv) == 0 {
			return
		}
		if path := programFile(argv[0], folder, search); path != "" {
			out = append(out, trusted{what: what, path: path, at: c.d.place(key), mend: moveProgram})
		}
	}
	for key, a := range each("agents", c.cfg.Agents) {
		for key, g := range each(key+".grants.commands", a.Grants.Commands) {
			add("the granted program", key+".argv", g.Argv, string(a.Workdir))
		}
	}
	for _, e := range c.cfg.executors() {
		add("the executor", e.path+".argv", e.Argv, "")
	}
	for key, s := range each("mcp", c.cfg.MCP) {
		add("the program of an MCP server", key+".argv", s.Argv, "")
	}
	for key, j := range each("jobs", c.cfg.Jobs) {
		for key, g := range each(key+".when", j.When) {
			add("the program of a condition", key+".command", g.Command, "")
		}
	}
	return out
}

const moveProgram = "move the program to where no agent writes"

// programFile returns the file of a program named by a path, relative to a folder, or in search.
// It returns "" if the program is not found.
func programFile(name, folder string, search []string) string {
	path := filepath.FromSlash(name)
	if strings.ContainsRune(path, filepath.Separator) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		return path
	}
	for _, dir := range search {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && filepath.IsAbs(dir) && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
