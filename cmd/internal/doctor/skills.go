package doctor

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/nosleep"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/install"
)

// featureDetail lists the features that skill programs can require, and the ones not available on
// this machine.
func featureDetail() string {
	var here, lacking []string
	for _, f := range skills.Features() {
		if f.Here {
			here = append(here, f.Name)
		} else {
			lacking = append(lacking, f.Name)
		}
	}
	return fmt.Sprintf(" (features: %s; not available: %s)", strings.Join(here, ", "), strings.Join(lacking, ", "))
}

// checkSkills reports changed installed skills, and skill programs that cannot run on this machine.
func checkSkills(ctx context.Context, cfg *config.Config) api.Check {
	found, err := install.Inspect(cfg.FoundSkills().Catalog())
	if err != nil {
		return Failed("skills", err.Error(), "see the message; rouse skills list shows the same")
	}

	var changed, whys, untrusted, blocked []string
	broken, programs := 0, 0
	for _, s := range found.Skills {
		if s.State == "changed" {
			changed, whys = append(changed, s.Name), append(whys, s.Why)
		}
		if s.Manifest == nil {
			continue
		}
		programs++
		why := s.Manifest.Obstacles(runtime.GOOS)
		if s.Manifest.StaysAwake() {
			if err := nosleep.Check(ctx); err != nil {
				why = append(why, fmt.Sprintf("it needs this machine to be kept awake while it runs: %v", err))
			}
		}
		if len(why) > 0 {
			blocked = append(blocked, fmt.Sprintf("%s (%s)", s.Name, strings.Join(why, "; ")))
		}
	}
	for _, p := range found.Problems {
		if !p.Warning {
			broken++
		} else if p.Rule == skills.RuleChanged {
			untrusted = append(untrusted, p.File)
		}
	}

	c := Passed("skills", fmt.Sprintf("%d found", len(found.Skills)))
	var remedies []string
	if programs > 0 {
		c.Detail += fmt.Sprintf(", %d with a program", programs) + featureDetail()
	}
	if len(blocked) > 0 {
		c.Detail += ", of which cannot run here: " + text.List(blocked, maxListed)
	}
	if broken > 0 {
		c.Detail += fmt.Sprintf(", %d cannot be loaded (see rouse skills list)", broken)
	}
	if len(changed) > 0 {
		c.Detail += "; changed since they were installed: " + text.List(changed, maxListed)
		remedies = append(remedies, "agents do not get them: "+text.List(whys, maxListed))
	}
	if len(untrusted) > 0 {
		c.Detail += "; changed since they were trusted: " + text.List(untrusted, maxListed)
		remedies = append(remedies, "agents do not get what was changed since it was trusted: look at it, and trust it again with: rouse skills trust FOLDER")
	}
	c.OK, c.Remedy = len(remedies) == 0, strings.Join(remedies, "; ")
	return c
}
