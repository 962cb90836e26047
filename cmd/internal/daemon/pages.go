package daemon

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	pages "rouse/cmd/internal/dashboard"
)

// newPages makes the pages of the home, which ask what the API asks.
func (d *Daemon) newPages() (http.Handler, error) {
	return pages.New(pages.Options{API: d.backend, Version: Version()})
}

// Zone implements web.Backend.
func (d *Daemon) Zone() *time.Location { return d.Current().Config.Zone() }

// AgentNames implements web.Backend.
func (d *Daemon) AgentNames() []string { return d.Current().agentNames() }

// Channels implements web.Backend.
func (d *Daemon) Channels() []string {
	var out []string
	for name := range d.Current().plan.channels {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Definition implements web.Backend: the lines of a job as they are in its file now. Secrets that were
// written there are blacked out.
func (d *Daemon) Definition(job string) (api.Definition, error) {
	now := d.Current()
	j := now.job(job)
	if j == nil {
		return api.Definition{}, &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("the job %s is not configured", job)}
	}

	content, err := os.ReadFile(j.At.File)
	if err != nil {
		return api.Definition{}, fmt.Errorf("the configuration of the job %s cannot be read: %w", job, err)
	}
	masked, kept := now.Config.Mask(j.At.File, content, now.plan.Plan.Secrets)
	shown := itemAt(string(masked), j.At.Line)
	if !kept {
		shown = "# [secret]: the secrets of this file cannot be masked where they are; see the job with: rouse config show"
	}
	return api.Definition{File: j.At.File, Line: j.At.Line, Text: shown}, nil
}

// itemAt is the item of a YAML list that begins on a line: that line and those that are indented further.
func itemAt(content string, line int) string {
	lines := strings.Split(content, "\n")
	if line < 1 || line > len(lines) {
		return "" // the file is not what it was when it was read
	}

	indent := func(l string) int { return len(l) - len(strings.TrimLeft(l, " ")) }
	from, end := line-1, line
	for end < len(lines) && (strings.TrimSpace(lines[end]) == "" || indent(lines[end]) > indent(lines[from])) {
		end++
	}
	return strings.TrimRight(strings.Join(lines[from:end], "\n"), "\n ")
}

// OpenFile implements web.Backend.
func (d *Daemon) OpenFile(path string) (io.ReadCloser, error) {
	return d.Current().plan.Plan.Boundary.Open(path)
}
