// Package load is the front door of the configuration: it reads a file and checks what it says.
//
// Reading (package yaml) and checking (package check) know the settings (package config) but not
// each other's callers, so the function that does both has a package of its own.
package load

import (
	"rouse/agent/tool"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/check"
	"rouse/cmd/internal/config/yaml"
)

// Config reads and checks a configuration. tools are the tools that exist; if nil, their names are
// not checked. It returns all problems as *config.Errors, with the settings that it could read.
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
	// Compare and Show would list them in addition to the settings that they changed.
	d.Config.Include, d.Config.Defaults = nil, nil
	d.Finish()
	return d.Config, d.Err()
}
