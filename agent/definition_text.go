package agent

import (
	"rouse/agent/loop"
	"rouse/agent/model/playbook"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/web"
)

// What follows writes the parts of a definition as the configuration has them, for those who
// are to approve it. Every field that changes what a run does is there: the text is hashed.

type definedCall struct {
	Call    string         `json:"call"`
	With    map[string]any `json:"with,omitempty"`
	Save    string         `json:"save,omitempty"`
	If      string         `json:"if,omitempty"`
	Each    any            `json:"each,omitempty"`
	OnError string         `json:"on_error,omitempty"`
}

func definedCalls(calls []playbook.Call) (out []definedCall) {
	for _, c := range calls {
		out = append(out, definedCall{c.Name, c.With, c.Save, c.If, c.Each, c.OnError})
	}
	return out
}

type definedGate struct {
	SQL     string   `json:"sql,omitempty"`
	Command []string `json:"command,omitempty"`
	HTTP    string   `json:"http,omitempty"`
	File    string   `json:"file,omitempty"`
	Not     bool     `json:"not,omitempty"`
	Timeout string   `json:"timeout,omitempty"`
}

func definedGates(gates []Gate) (out []definedGate) {
	for _, g := range gates {
		d := definedGate{SQL: g.SQL, Command: g.Command, HTTP: g.HTTP, File: g.File, Not: g.Not}
		if g.Timeout != 0 {
			d.Timeout = g.Timeout.String()
		}
		out = append(out, d)
	}
	return out
}

type definedBounds struct {
	Steps   int     `json:"steps"`
	Calls   int     `json:"calls"`
	Wall    string  `json:"wall"`
	Idle    string  `json:"idle"`
	Tokens  int64   `json:"tokens,omitempty"`
	CostUSD float64 `json:"cost_usd,omitempty"`
	Output  int64   `json:"output"`
}

func definedBoundsOf(b loop.Bounds) definedBounds {
	return definedBounds{b.Steps, b.Calls, b.Wall.String(), b.Idle.String(), b.Tokens, float64(b.CostMicroUSD) / 1e6, b.Output}
}

type definedCommand struct {
	Argv    []string `json:"argv"`
	Network string   `json:"network,omitempty"`
}

func definedCommands(grants []shell.Grant) (out []definedCommand) {
	for _, g := range grants {
		d := definedCommand{Argv: g.Argv}
		if g.Network {
			d.Network = "host"
		}
		out = append(out, d)
	}
	return out
}

type definedHost struct {
	Host    string   `json:"host"`
	Methods []string `json:"methods,omitempty"`
	Private bool     `json:"private,omitempty"`
}

func definedHosts(grants []web.Grant) (out []definedHost) {
	for _, g := range grants {
		out = append(out, definedHost{g.Host, g.Methods, g.Private})
	}
	return out
}
