package yaml

import (
	"fmt"
	"slices"
	"strings"

	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

// includable lists the keys of an included file.
var includable = []string{"models", "agents", "mcp", "calendars", "jobs", "notifications"}

// include appends the lists of included files to root. The chain leads from the main file to from.
func (d *decoder) include(root, from *node, chain []string, cfg *config.Config) {
	globs := from.child("include")
	if globs == nil {
		return
	}

	items := globs.items
	if globs.kind == scalar && !globs.null() {
		items = []*node{globs}
	}

	for i, g := range items {
		path := fmt.Sprintf("include[%d]", i)
		text, ok := "", g.kind == scalar && !g.null()
		if ok {
			text, ok = d.expand(g, path, false)
		}
		if !ok {
			continue // the decoder reports this in the main file
		}

		for _, file := range d.matches(g, path, text, chain, cfg) {
			d.includeFile(root, g.at, path, file, chain, cfg)
		}
	}
}

// matches returns the files that match an include and were not read yet.
func (d *decoder) matches(g *node, path, text string, chain []string, cfg *config.Config) []string {
	pattern := d.Resolve(g.at.File, text)
	if !strings.ContainsAny(text, "*?[{") {
		switch {
		// Check the chain first, because a file that includes itself was also read before.
		case slices.Contains(chain, pattern):
			d.Problem(g.at, path, "the file includes itself: %s", strings.Join(displayed(append(slices.Clone(chain), pattern)), ", "))
			return nil
		case slices.Contains(cfg.Files, pattern):
			d.Problem(g.at, path, "%s is included twice", config.Display(pattern))
			return nil
		}
		return []string{pattern}
	}

	// Record the pattern even without matches, because files that appear later will be read.
	d.Globs = append(d.Globs, Origin{Path: pattern, At: g.at})
	found, err := cfg.Sources.Glob(pattern)
	if err != nil {
		d.Problem(g.at, path, "the pattern %q is broken", text)
		return nil
	}

	if len(found) == 0 {
		d.Problem(g.at, path, "no file matches %s", config.Display(pattern)).Warning = true
	}

	// A glob may match the file that contains it.
	return slices.DeleteFunc(found, func(file string) bool { return slices.Contains(cfg.Files, file) })
}

func displayed(paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = config.Display(p)
	}
	return out
}

func (d *decoder) includeFile(root *node, at config.Position, path, file string, chain []string, cfg *config.Config) {
	if slices.Contains(cfg.Files, file) {
		return // an earlier file of the same glob included it
	}

	d.Origins = append(d.Origins, Origin{What: "the configuration", Path: file, At: at})
	text, err := cfg.Sources.Read(file, config.ReadPlain)
	if err != nil {
		d.Problem(at, path, "%s", err.Error())
		return
	}

	// Record the file before its own includes, so that cycles of globs end.
	cfg.Files = append(cfg.Files, file)
	top := d.parse(file, text)
	if top == nil {
		return
	}

	for _, e := range top.entries {
		d.splice(root, e)
	}

	d.include(root, top, append(slices.Clone(chain), file), cfg)
}

// splice appends a list of an included file to that of the main file.
func (d *decoder) splice(root *node, e entry) {
	switch {
	case e.key == "include":
	case e.key == "version":
		if e.value.text != "1" {
			d.Problem(e.value.at, e.key, "must be 1, the only version there is")
		}
	case !slices.Contains(includable, e.key):
		d.Problem(e.at, e.key, "an included file holds only lists of models, agents, mcp, calendars, jobs and notifications").Hint = text.DidYouMean(e.key, includable)
	case e.value.kind != list:
		d.Problem(e.value.at, e.key, "must be a list, not %s", e.value)
	default:
		if into := root.child(e.key); into != nil {
			into.items = append(into.items, e.value.items...)
			return
		}
		root.entries = append(root.entries, e)
	}
}

// applyDefaults copies settings of defaults: to each job that does not set them.
func applyDefaults(d *decoder, root *node) {
	i := slices.IndexFunc(root.entries, func(e entry) bool { return e.key == "defaults" })
	if i < 0 {
		return
	}

	e := root.entries[i]
	// The decoder keeps the first of equal problems. Decode defaults first, because jobs share its
	// nodes.
	root.entries = slices.Insert(slices.Delete(root.entries, i, i+1), 0, e) // reports problems at defaults

	for _, f := range config.Fields(jobType) {
		if own := e.value.entry(f.Key); f.JobOnly && own != nil {
			d.Problem(own.at, "defaults."+f.Key, "belongs to one job, not to all")
		}
	}

	jobs := root.child("jobs")
	if jobs == nil {
		return
	}

	for _, job := range jobs.items {
		if job.kind == mapping {
			merge(job, e.value)
		}
	}
}

// merge adds missing keys to a mapping, recursively.
func merge(into, from *node) {
	have := map[string]*node{}
	for _, e := range into.entries {
		have[e.key] = e.value
	}

	for _, e := range from.entries {
		switch own := have[e.key]; {
		case own == nil:
			into.entries = append(into.entries, e)
		case own.kind == mapping && e.value.kind == mapping:
			merge(own, e.value)
		}
	}
}
