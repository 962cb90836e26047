package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v4"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 4 << 20

// LoadOptions say what to read.
type LoadOptions struct {
	Path   string
	Home   string              // of a flag; "" leaves it to the file
	Getenv func(string) string // nil means os.Getenv
	Tools  []string            // the tools that exist
}

// Load reads and checks a configuration. Problems come back as *Errors, all of them;
// what could be read is returned beside it.
func Load(o LoadOptions) (*Config, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, err
	}
	d := &decoder{getenv: o.Getenv, files: map[*yaml.Node]string{}, file: path}
	root, err := readFile(d, path)
	if err != nil {
		return nil, err
	}
	cfg := &Config{Files: []string{path}}
	if root == nil || len(d.problems) > 0 {
		return cfg, &Errors{d.problems}
	}
	d.include(root, cfg)
	overlay(d, root, o)
	applyDefaults(d, root)
	d.structure(root, "", reflect.ValueOf(cfg).Elem())
	cfg.secrets = d.secrets
	if len(d.problems) == 0 {
		cfg.fill(o)
		check(d, cfg, o)
	}
	return cfg, d.verdict(cfg)
}

// verdict sorts the problems by place and parts the warnings from the errors.
func (d *decoder) verdict(cfg *Config) error {
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		if c := slices.Index(cfg.Files, a.File) - slices.Index(cfg.Files, b.File); c != 0 {
			return c
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	var wrong []Problem
	for _, p := range d.problems {
		if p.Warning {
			cfg.Warnings = append(cfg.Warnings, p)
		} else {
			wrong = append(wrong, p)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return &Errors{wrong}
}

var yamlLine = regexp.MustCompile(`^(?:yaml: |go-yaml[^:]*: )?(?:while [^:]*: )?(?:.*?)line (\d+)(?:, column (\d+))?: (.*)$`)

// readFile parses one file into its top mapping; syntax errors become problems.
func readFile(d *decoder, path string) (*yaml.Node, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no configuration %s; write one with: rouse init", path)
	}
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be read: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be read: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("the configuration %s is larger than %d bytes", path, maxFile)
	}
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	if err := decodeSafely(dec, &doc); err != nil {
		if errors.Is(err, io.EOF) {
			d.problems = append(d.problems, Problem{File: path, Message: "is empty; write a configuration with: rouse init"})
			return nil, nil
		}
		d.problems = append(d.problems, syntaxProblem(path, err))
		return nil, nil
	}
	if err := decodeSafely(dec, &more); !errors.Is(err, io.EOF) {
		d.problem(&more, "", "a second document begins here; a configuration is one document")
		return nil, nil
	}
	top := &doc
	if doc.Kind == yaml.DocumentNode && len(doc.Content) > 0 {
		top = doc.Content[0]
	}
	if top.Kind != yaml.MappingNode {
		d.problem(top, "", "must be a mapping of keys, not %s", kindName(top))
		return nil, nil
	}
	return top, nil
}

// decodeSafely survives what the parser does not.
func decodeSafely(dec *yaml.Decoder, into *yaml.Node) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the YAML cannot be parsed: %v", p)
		}
	}()
	return dec.Decode(into)
}

func syntaxProblem(path string, err error) Problem {
	text := strings.Join(strings.Fields(err.Error()), " ")
	p := Problem{File: path, Line: 1, Column: 1, Message: "YAML syntax: " + text}
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		p.Line, _ = strconv.Atoi(m[1]) // digits, as the expression says
		if m[2] != "" {
			p.Column, _ = strconv.Atoi(m[2])
		}
		p.Message = "YAML syntax: " + m[3]
	}
	if strings.Contains(text, "cannot start any token") || strings.Contains(text, "tab") {
		p.Hint = "indent with spaces, not tabs, and quote texts that begin with @, ` or %"
	}
	return p
}

// child finds the value of a key.
func child(n *yaml.Node, key string) *yaml.Node {
	for _, pair := range pairs(n) {
		if pair[0].Value == key {
			return follow(pair[1])
		}
	}
	return nil
}

// include appends the lists of other files to those of the main one.
func (d *decoder) include(root *yaml.Node, cfg *Config) {
	globs := child(root, "include")
	if globs == nil {
		return
	}
	main := d.file
	for _, g := range append(globs.Content, scalarItem(globs)...) {
		pattern := g.Value
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(main), pattern)
		}
		found, err := filepath.Glob(pattern)
		if err != nil || (len(found) == 0 && !strings.ContainsAny(g.Value, "*?[")) {
			d.problem(g, "include", "there is no file %s", pattern)
			continue
		}
		for _, path := range found {
			if slices.Contains(cfg.Files, path) {
				d.problem(g, "include", "%s is included twice, or includes itself", path)
				continue
			}
			cfg.Files = append(cfg.Files, path)
			d.file = path
			top, err := readFile(d, path)
			if err != nil {
				d.problem(g, "include", "%s", err.Error())
			}
			if top != nil {
				d.splice(root, top, path)
			}
			d.file = main
		}
	}
}

func scalarItem(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.ScalarNode {
		return []*yaml.Node{n}
	}
	return nil
}

// splice adds the lists of an included file to the main tree, remembering where they stood.
func (d *decoder) splice(root, top *yaml.Node, path string) {
	for _, pair := range pairs(top) {
		key, value := pair[0], follow(pair[1])
		if !slices.Contains([]string{"models", "agents", "jobs", "notifications"}, key.Value) || value.Kind != yaml.SequenceNode {
			d.problem(key, key.Value, "an included file holds only lists of models, agents, jobs and notifications")
			continue
		}
		d.remember(value, path)
		into := child(root, key.Value)
		if into == nil {
			root.Content = append(root.Content, key, value)
			d.files[key] = path
			continue
		}
		into.Content = append(into.Content, value.Content...)
	}
}

func (d *decoder) remember(n *yaml.Node, path string) {
	if n == nil || d.files[n] != "" {
		return
	}
	d.files[n] = path
	for _, c := range n.Content {
		d.remember(c, path)
	}
}

// overlay lets the environment and flags decide the daemon's scalars.
func overlay(d *decoder, root *yaml.Node, o LoadOptions) {
	v := viper.New()
	for _, key := range []string{"home", "timezone", "log.level", "log.format", "limits.runs", "limits.runs_per_agent", "limits.drain"} {
		if value := o.Getenv("ROUSE_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))); value != "" {
			v.SetDefault(key, value)
		}
		if key == "home" && o.Home != "" {
			v.Set(key, o.Home)
		}
		if !v.IsSet(key) {
			continue
		}
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v.GetString(key)}
		d.files[n] = "the environment or a flag"
		if key == "home" {
			if abs, err := filepath.Abs(n.Value); err == nil {
				n.Value = abs
			}
		}
		put(root, strings.Split(key, "."), n)
	}
}

// put sets a value in a tree, making the mappings on the way.
func put(n *yaml.Node, path []string, value *yaml.Node) {
	for i, pair := range pairs(n) {
		if pair[0].Value != path[0] {
			continue
		}
		if len(path) == 1 {
			n.Content[2*i+1] = value
		} else if inner := follow(pair[1]); inner.Kind == yaml.MappingNode {
			put(inner, path[1:], value)
		}
		return
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: path[0]}
	if len(path) > 1 {
		inner := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		put(inner, path[1:], value)
		value = inner
	}
	n.Content = append(n.Content, key, value)
}

// applyDefaults gives each job what defaults: says and the job does not.
func applyDefaults(d *decoder, root *yaml.Node) {
	defaults, jobs := child(root, "defaults"), child(root, "jobs")
	if defaults == nil || jobs == nil || defaults.Kind != yaml.MappingNode || jobs.Kind != yaml.SequenceNode {
		return
	}
	for _, name := range []string{"name", "agent", "prompt", "prompt_file", "playbook", "schedule", "every", "at", "watch", "webhook"} {
		if n := child(defaults, name); n != nil && name != "agent" {
			d.problem(n, "defaults."+name, "belongs to one job, not to all")
		}
	}
	d.remember(defaults, d.file)
	for _, job := range jobs.Content {
		if job = follow(job); job.Kind == yaml.MappingNode {
			merge(job, defaults)
		}
	}
}

// merge adds what into lacks, key by key.
func merge(into, from *yaml.Node) {
	for _, pair := range pairs(from) {
		have := child(into, pair[0].Value)
		switch theirs := follow(pair[1]); {
		case have == nil:
			into.Content = append(into.Content, pair[0], pair[1])
		case have.Kind == yaml.MappingNode && theirs.Kind == yaml.MappingNode:
			merge(have, theirs)
		}
	}
}

// fill sets the defaults that depend on nothing but the file.
func (c *Config) fill(o LoadOptions) {
	if c.Home == "" {
		if home, err := DefaultHome(o.Getenv); err == nil {
			c.Home = Path(home)
		}
	}
	if c.Log.Level == "" {
		c.Log.Level = "info"
	}
	if c.Log.Format == "" {
		c.Log.Format = "auto"
	}
	for i := range c.Agents {
		a := &c.Agents[i]
		if a.Workdir == "" {
			a.Workdir = Path(filepath.Join(string(c.Home), "agents", string(a.Name), "work"))
		}
		if a.Database.Quota == 0 {
			a.Database.Quota = 100 << 20
		}
	}
	for i := range c.Jobs {
		j := &c.Jobs[i]
		if j.Notify.On == nil {
			j.Notify.On = []string{"success", "error", "waiting"}
		}
		if j.Notify.Channels == nil {
			j.Notify.Channels = []string{"desktop"}
		}
		if j.Keep == 0 {
			j.Keep = Duration(90 * 24 * 3600 * 1e9)
		}
		if j.Retry.On == nil {
			j.Retry.On = []string{"error", "timeout"}
		}
	}
}
