package check

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/places"
	"rouse/cmd/internal/layout"
	"rouse/internal/fspath"
	"rouse/internal/nofollow"
	"rouse/internal/text"
	"rouse/skills"
)

// trusted is a file or folder that controls rouse. Its writers decide what rouse does.
type trusted struct {
	what  string
	path  string
	at    config.Position // position of the setting that names it; line 0 without a setting
	whole bool            // everything inside is trusted, so no part of it may be writable by others
	mend  string          // remedy; "" means moving it elsewhere
}

func (t trusted) String() string {
	said := fmt.Sprintf("%s %s", t.what, config.Display(t.path))
	if t.at.Line > 0 {
		said += fmt.Sprintf(" (%s)", t.at)
	}
	return said
}

// protected checks that agents cannot write to folders and files that rouse trusts.
type protected struct {
	report
	calendarFiles []trusted     // iCalendar files
	skillRoots    []skills.Root // folders that are searched for skills
}

// ownersFolder refuses a path that controls a trusted program if others can write there. It
// ignores writes by the executor of agent.
func (c *protected) ownersFolder(path, folder, agent string) {
	if folder == "" {
		return
	}
	c.notOfTheHome(path, folder)
	if p := places.FindWriter(c.cfg, folder, agent); p != nil {
		c.bad(path, "%s (%s), which is in or around %s, and so could lead the program", p, c.d.Place(p.Key), config.Display(folder)).
			Hint = "choose a place that no folder of an agent lies in or holds, or " + p.Mend
	}
}

// layout reports trusted files that others could write. Each problem names both places with lines.
func (c *protected) layout() {
	all, folders := c.trusted(), places.All(c.cfg)

	// Compare resolved paths, because agents write to the target of a link.
	glance := nofollow.NewStatCache()
	real := make([]string, len(folders))
	for i, p := range folders {
		real[i] = places.OwnersPath(p.Folder, glance)
	}

	// Trusted paths are followed link by link. Neither a link nor its target may be in an
	// untrusted folder.
	inside := map[int][]trusted{}
	others := glance.UntrustedDirs(real...)
	for _, t := range all {
		if !places.Holds(others, t.path) {
			continue
		}
		for i, folder := range real { // also folders inside another one, because they have the same remedy
			if places.Holds(glance.UntrustedDirs(folder), t.path) {
				inside[i] = append(inside[i], t)
			}
		}
	}

	whole := slices.DeleteFunc(all, func(t trusted) bool { return !t.whole })
	for i, p := range folders {
		if found := append(inside[i], c.around(real[i], whole, glance)...); len(found) > 0 {
			c.layoutProblem(&p, found)
		}
	}
}

func (c *protected) layoutProblem(p *places.Place, found []trusted) {
	var names []string
	mends := []string{p.Mend}
	for _, t := range found {
		if name := t.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
		if mend := cmp.Or(t.mend, "keep what is trusted elsewhere"); !slices.Contains(mends, mend) {
			mends = append(mends, mend)
		}
	}

	c.bad(p.Key, "%s, and so could change what rouse trusts: %s", p, text.List(names, 5)).Hint = strings.Join(mends, ", or ")
}

// around returns the trusted folders that contain a place or would contain it.
func (c *protected) around(real string, whole []trusted, glance *nofollow.StatCache) (out []trusted) {
	for _, t := range whole {
		if fspath.Within(strings.ToLower(real), strings.ToLower(places.OwnersPath(t.path, glance))) { // some file systems ignore case
			out = append(out, t)
		}
	}

	if c.cfg.Home != "" && layout.Kept(strings.ToLower(places.OwnersPath(string(c.cfg.Home), glance)), strings.ToLower(real)) {
		out = append(out, trusted{what: "what it keeps in its home", path: string(c.cfg.Home), at: c.d.Place("home")})
	}

	for _, g := range c.d.Globs {
		if _, ok := places.MatchesInside(g.Path, real); ok {
			out = append(out, trusted{what: "the configuration that is found by", path: g.Path, at: g.At})
		}
	}
	return out
}

// notOfTheHome refuses access to rouse's own files in its home. It follows links.
func (c *protected) notOfTheHome(path, folder string) {
	glance := nofollow.NewStatCache()
	if c.cfg.Home == "" || folder == "" {
		return
	}
	home, real := strings.ToLower(places.OwnersPath(string(c.cfg.Home), glance)), strings.ToLower(places.OwnersPath(folder, glance))
	if real == home || layout.Kept(home, real) && !fspath.Within(real, filepath.Join(home, "skills")) {
		c.bad(path, "%s belongs to rouse itself, and no program gets to see it", config.Display(folder)).Hint = "name another folder"
	}
}

func (c report) inHome(folder string) bool {
	glance := nofollow.NewStatCache()
	return folder != "" && c.cfg.Home != "" && fspath.Within(places.OwnersPath(folder, glance), places.OwnersPath(string(c.cfg.Home), glance))
}

// trusted returns the files and folders that control rouse.
func (c *protected) trusted() []trusted {
	var out []trusted
	for _, o := range c.d.Origins { // files of the configuration
		out = append(out, trusted{what: o.What, path: o.Path, at: o.At})
	}
	out = append(out, c.calendarFiles...)
	if c.cfg.Home != "" {
		out = append(out, trusted{what: "the home", path: string(c.cfg.Home), at: c.d.Place("home")})
	}

	for _, g := range c.d.Globs {
		out = append(out, trusted{what: "the configuration in", path: places.GlobFolder(g.Path), at: g.At})
	}

	if t := c.cfg.Dashboard.TLS; t != nil {
		for key, path := range map[string]config.Path{"cert": t.Cert, "key": t.Key} {
			out = append(out, trusted{what: "the certificate of the dashboard", path: string(path), at: c.d.Place("dashboard.tls." + key)})
		}
	}

	for _, r := range c.skillRoots {
		if r.Trusted {
			out = append(out, trusted{what: "the skills of", path: r.Path, at: c.skillRootPlace(r.Path), whole: true})
		}
	}

	for key, a := range config.Each("agents", c.cfg.Agents) {
		for key, name := range config.Each(key+".skills", a.Skills) {
			if isPath(*name) {
				at := c.d.Place(key)
				out = append(out, trusted{what: "the skill", path: c.d.Resolve(at.File, *name), at: at, whole: true})
			}
		}
	}

	for key, m := range config.Each("models", c.cfg.Models) {
		if m.Recording != "" {
			out = append(out, trusted{what: "what a model answers, recorded in", path: string(m.Recording), at: c.d.Place(key + ".recording")})
		}
	}

	for _, o := range config.Checkouts(c.cfg) {
		if o.Repo != "" {
			out = append(out, trusted{what: "the repository of a checkout", path: string(o.Repo), at: c.d.Place(o.Path + ".repo"), whole: true, mend: "let no agent write in the repository"})
		}
	}

	return append(out, c.trustedPrograms()...)
}

// skillRootPlace returns the position of the setting for a skill root, without a line if it is not
// configured.
func (c *protected) skillRootPlace(path string) config.Position {
	if c.cfg.Skills != nil {
		for key, r := range config.Each("skills.roots", c.cfg.Skills.Roots) {
			if string(r.Path) == path {
				return c.d.Place(key + ".path")
			}
		}
	}
	return config.Position{}
}

// trustedPrograms returns the programs that rouse starts, and the folders of its search path.
func (c *protected) trustedPrograms() (out []trusted) {
	if self, err := os.Executable(); err == nil {
		out = append(out, trusted{what: "the program", path: self})
	}

	search := filepath.SplitList(c.d.Getenv("PATH"))
	for _, folder := range search {
		if filepath.IsAbs(folder) { // programs are not started from relative folders
			out = append(out, trusted{what: "the programs of $PATH in", path: folder, mend: "take the folder off PATH"})
		}
	}

	add := func(what, key string, argv []string, folder string) {
		if len(argv) == 0 {
			return
		}
		if path := programFile(argv[0], folder, search); path != "" {
			out = append(out, trusted{what: what, path: path, at: c.d.Place(key), mend: moveProgram})
		}
	}
	for key, a := range config.Each("agents", c.cfg.Agents) {
		for key, g := range config.Each(key+".grants.commands", a.Grants.Commands) {
			add("the granted program", key+".argv", g.Argv, string(a.Workdir))
		}
	}
	for _, e := range config.Executors(c.cfg) {
		add("the executor", e.Path+".argv", e.Argv, "")
	}
	for key, s := range config.Each("mcp", c.cfg.MCP) {
		add("the program of an MCP server", key+".argv", s.Argv, "")
	}
	for key, j := range config.Each("jobs", c.cfg.Jobs) {
		for key, g := range config.Each(key+".when", j.When) {
			add("the program of a condition", key+".command", g.Command, "")
		}
	}
	return out
}

const moveProgram = "move the program to where no agent writes"

// programFile returns the file of a program that is named by a path relative to folder, or found
// in search. It returns "" if the program is not found.
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
