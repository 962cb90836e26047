package module

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// namespace is the esbuild namespace of all source files. It keeps esbuild from reading the disk.
const namespace = "skill"

// compiled is the result of a compilation.
type compiled struct {
	Code    string `json:",omitempty"` // a single ES module
	Map     string `json:",omitempty"` // its source map
	Exports []string
	Syntax  *SyntaxError `json:",omitempty"`
}

// build compiles sources. It must run in a child process, because deeply nested input can crash the
// parser.
func build(s *sources) (*compiled, error) {
	res := api.Build(api.BuildOptions{
		EntryPoints: []string{EntryFile},
		Bundle:      true,
		Write:       false,
		Outfile:     "/module.js",
		Format:      api.FormatESModule,
		Platform:    api.PlatformNeutral,
		Target:      api.ES2022,
		Charset:     api.CharsetUTF8,
		Sourcemap:   api.SourceMapExternal,
		// Stacks need only line numbers, and the sources are available.
		SourcesContent: api.SourcesContentExclude,
		LegalComments:  api.LegalCommentsNone,
		Metafile:       true,
		TsconfigRaw:    "{}",
		LogLevel:       api.LogLevelSilent,
		LogLimit:       10,
		Plugins:        []api.Plugin{{Name: namespace, Setup: s.serve}},
	})
	if len(res.Errors) > 0 {
		return &compiled{Syntax: syntaxError(res.Errors[0])}, nil
	}

	c := &compiled{}
	for _, f := range res.OutputFiles {
		if strings.HasSuffix(f.Path, ".map") {
			c.Map = string(f.Contents)
		} else {
			c.Code = string(f.Contents)
		}
	}

	var meta struct {
		Outputs map[string]struct {
			EntryPoint string
			Exports    []string
		}
	}
	if err := json.Unmarshal([]byte(res.Metafile), &meta); err != nil {
		return nil, fmt.Errorf("esbuild's metafile: %w", err)
	}

	for _, out := range meta.Outputs {
		if out.EntryPoint != "" {
			c.Exports = out.Exports
		}
	}
	slices.Sort(c.Exports)
	return c, nil
}

// serve makes esbuild read files only from the sources.
func (s *sources) serve(b api.PluginBuild) {
	b.OnResolve(api.OnResolveOptions{Filter: ".*"}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
		name, err := s.resolve(a.Path, a.Importer)
		return api.OnResolveResult{Path: name, Namespace: namespace}, err
	})
	b.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: namespace}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
		text, loader := s.Files[a.Path], api.LoaderJS
		switch path.Ext(a.Path) {
		case ".ts", ".mts":
			loader = api.LoaderTS
		case ".json":
			loader = api.LoaderJSON
		}
		return api.OnLoadResult{Contents: &text, Loader: loader}, nil
	})
}

// resolve returns the file that an import refers to. importer is "" for the entry file.
func (s *sources) resolve(wanted, importer string) (string, error) {
	if importer == "" {
		if _, ok := s.Files[EntryFile]; !ok {
			if size, ok := s.Large[EntryFile]; ok {
				return "", tooLarge(EntryFile, size)
			}
			return "", fmt.Errorf("there is no %s", EntryFile)
		}
		return EntryFile, nil
	}

	if !strings.HasPrefix(wanted, "./") && !strings.HasPrefix(wanted, "../") {
		return "", fmt.Errorf("a module imports files of its own folder, as ./name; %q is none, and packages cannot be imported", wanted)
	}

	at := path.Join(path.Dir(importer), wanted)
	if at == ".." || strings.HasPrefix(at, "../") {
		return "", fmt.Errorf("%q leads out of the folder of the skill", wanted)
	}

	for _, name := range candidates(at) {
		if _, ok := s.Files[name]; ok {
			return name, nil
		}
		if size, ok := s.Large[name]; ok {
			return "", tooLarge(name, size)
		}
	}

	return "", fmt.Errorf("%q is not in the folder of the skill, or is a link, or no file of %s", wanted, strings.Join(extensions, ", "))
}

func tooLarge(name string, size int64) error {
	return fmt.Errorf("%s has %d bytes, and %d are the most that a module can import", name, size, maxFile)
}

// candidates returns the file names that an import may refer to, in TypeScript's order.
func candidates(name string) []string {
	out := []string{name}
	if rest, ok := strings.CutSuffix(name, ".js"); ok {
		out = append(out, rest+".ts")
	}
	if rest, ok := strings.CutSuffix(name, ".mjs"); ok {
		out = append(out, rest+".mts")
	}

	for _, ext := range extensions {
		out = append(out, name+ext)
	}
	for _, ext := range extensions {
		out = append(out, name+"/index"+ext)
	}
	return out
}

func syntaxError(m api.Message) *SyntaxError {
	e := &SyntaxError{File: EntryFile, Text: strings.ReplaceAll(m.Text, `"`+namespace+":", `"`)}
	if at := m.Location; at != nil {
		e.File, e.Line, e.Column = strings.TrimPrefix(at.File, namespace+":"), at.Line, at.Column+1
	}
	return e
}
