package daemon

import (
	"os"
	"slices"

	"rouse/agent/tool"
	"rouse/cmd/internal/config"
)

// newMasks are the places that no agent may change, or see: what later runs trust
// (docs/security.md). Skills that an agent has by their path, its runs mask themselves.
func newMasks(cfg *config.Config) tool.Masks {
	m := tool.Masks{ReadOnly: slices.Concat(cfg.Files, cfg.Included()), Hidden: []string{string(cfg.Home)}}
	for _, r := range cfg.SkillRoots(os.Getenv) {
		if r.Trusted {
			m.ReadOnly = append(m.ReadOnly, r.Path)
		}
	}
	return m
}
