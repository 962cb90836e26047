// Package load reads a configuration file and checks it.
//
// Package check depends on package yaml, so the function that calls both has a package of its own.
package load

import (
	"rouse/agent/tool"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/check"
	"rouse/cmd/internal/config/yaml"
)

// Config reads and checks a configuration. It checks tool names against tools, unless tools is
// nil. It returns all problems as *config.Errors, together with the settings that it could read.
func Config(o yaml.Options, tools tool.Specs) (*config.Config, error) {
	d, err := yaml.Read(o)
	switch {
	case d == nil:
		return nil, err
	case err != nil:
		return d.Config, err
	case !d.HasRoot():
		return d.Config, d.Err()
	}

	check.Run(d, tools)
	// Compare and Show would list these in addition to the settings that they changed.
	d.Config.Include, d.Config.Defaults = nil, nil
	d.Finish()
	return d.Config, d.Err()
}
