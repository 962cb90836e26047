package daemon

import (
	"context"
	"net/http"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
	"rouse/skills/install"
)

// Skills implements web.Backend.
func (d *Daemon) Skills(context.Context) (install.Inventory, error) {
	return install.Inspect(d.Current().Config.SkillCatalog())
}

// Skill implements web.Backend.
func (d *Daemon) Skill(_ context.Context, name string) (install.Detail, error) {
	all := d.Current().Config.SkillCatalog()
	s, ok := all.Get(name)
	if !ok {
		var names []string
		for _, s := range all.Skills() {
			names = append(names, s.Name)
		}
		return install.Detail{}, &api.Error{Status: http.StatusNotFound, Message: text.NoSuch("skill", name, names), Usage: true}
	}
	return install.Describe(s, all.ProblemsOf(s))
}
