package install_test

import (
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"rouse/skills"
	"rouse/skills/install"
)

// manifest returns the manifest of the program sums for some platforms.
func manifest(t testing.TB, version, platforms string) string {
	t.Helper()
	text := `{"name": "sums", "description": "Adds.", "version": "` + version + `", "author": "a", "schemaVersion": "2.0", "capabilities": [], "requiredBindings": [], "permissions": [],
"inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}, "compatibilityRequirements": ["indexeddb"], "supportedPlatforms": ` + platforms + `, "bridgeRequirement": "never", "workspaceSupport": "none",
"workspaceSchemaVersion": null, "longRunningSupport": "none", "userInputSupport": false, "artifactVersioningSupport": false, "executionMode": "declarative", "agenticConfig": null}`
	if !json.Valid([]byte(text)) {
		t.Fatal(text)
	}
	return text
}

const (
	module = "export async function execute() { return {}; }\n"
	index  = `[{"name": "sums", "description": "Adds.", "version": "1.0.0", "author": "a", "folderPath": "skills/sums", "tags": ["money"]}]`
)

// A program can be installed from a folder, an archive or a repository, with the tags of the index.
// Its terms and their changes are known before installation (OSL-02, OSL-34).
func TestSourcesOfPrograms(t *testing.T) {
	items := []item{
		{"skills/index.json", index, 0}, {"skills/sums/manifest.json", manifest(t, "1.0.0", "[]"), 0}, {"skills/sums/module.ts", module, 0}, {"skills/sums/docs.md", "# Sums\n", 0},
		{"skills/other/SKILL.md", "---\nname: other\ndescription: Is not in the index.\n---\n", 0}, {"examples/sample/manifest.json", strings.Replace(manifest(t, "9.0.0", "[]"), "sums", "sample", 1), 0}, {"examples/sample/module.ts", module, 0},
	}
	var packed []item
	for _, i := range items {
		packed = append(packed, item{"repo-main/" + i.name, i.text, i.kind})
	}

	for name, c := range map[string]struct{ source, path, want string }{
		"folder":                 {folder(t, items...), "", "skills/sums"},
		"folder, by its path":    {folder(t, items...), "skills/sums", "skills/sums"},
		"archive":                {zipped(t, items...), "", "skills/sums"},
		"archive of a server":    {tarball(t, packed...), "", "repo-main/skills/sums"},
		"archive, by its path":   {tarball(t, packed...), "repo-main/skills/sums", "repo-main/skills/sums"},
		"a tree with one folder": {folder(t, packed...), "repo-main", "repo-main/skills/sums"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, root := t.Context(), t.TempDir()
			staged, err := install.Fetch(ctx, root, install.Source{From: c.source, Path: c.path})
			if err != nil {
				t.Fatal(err)
			}
			defer staged.Close()

			s := staged.Skill
			if s.Name != "sums" || s.Kind() != skills.KindModule || staged.Path != c.want || len(staged.Files) != 3 || !slices.Equal(s.Tags, []string{"money"}) {
				t.Errorf("%+v at %s, %v", s, staged.Path, staged.Files)
			}
			if changes, replaces := staged.Changes(root); replaces || changes != nil {
				t.Errorf("differs from none: %v", changes)
			}

			pinned, err := install.Install(ctx, root, staged, false)
			if err != nil || pinned.Version != "1.0.0" {
				t.Fatalf("%+v (%v)", pinned, err)
			}
			// The staging directory exists until Close.
			there := slices.DeleteFunc(below(t, root), func(p string) bool { return strings.HasPrefix(p, ".staging/") })
			if strings.Join(there, " ") != "sums/docs.md sums/manifest.json sums/module.ts" {
				t.Errorf("%s", there)
			}

			found := skills.Discover(skills.Root{Path: root, Trusted: true, Tags: install.Tags(root)})
			if s, ok := found.Get("sums"); !ok || !slices.Equal(s.Tags, []string{"money"}) {
				t.Errorf("%+v, %v", s, found.Problems())
			}

			again, err := install.Fetch(ctx, root, install.Source{From: folder(t, item{"manifest.json", manifest(t, "1.1.0", "[]"), 0}, item{"module.ts", module, 0})})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if changes, replaces := again.Changes(root); !replaces || len(changes) != 2 || changes[1].Text != "1.1.0 by a" || !changes[1].Added {
				t.Errorf("%v", changes)
			}
		})
	}

	root := t.TempDir()
	two := strings.Replace(index, "]}]", `]}, {"name": "sample", "description": "x", "version": "9.0.0", "author": "a", "folderPath": "examples/sample", "tags": []}]`, 1)
	for want, changed := range map[string]string{"--path: skills/sums, examples/sample": two, "--path: skills/other, examples/sample, skills/sums": "[]"} {
		items[0].text = changed
		if _, err := install.Fetch(t.Context(), root, install.Source{From: folder(t, items...)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A program for another system is not installed (OSL-21). A program that only lacks a feature is,
// for example an MCP server (OSL-33).
func TestPlatform(t *testing.T) {
	here := map[string]string{"darwin": "macos", "windows": "windows", "linux": "linux"}[runtime.GOOS]
	others := `["macos", "windows"]`
	if here != "linux" {
		others = `["linux"]`
	}

	for platforms, ok := range map[string]bool{
		"[]": true, `["` + here + `"]`: here != "", others: false,
		`[], "requiredMcpServers": [{"name": "files", "description": "x"}]`:                      true,
		`[], "requiredMcpTools": [{"serverName": "files", "toolName": "a", "description": "x"}]`: true,
	} {
		root := t.TempDir()
		staged, err := install.Fetch(t.Context(), root, install.Source{From: folder(t, item{"manifest.json", manifest(t, "1.0.0", platforms), 0}, item{"module.ts", module, 0})})
		if err != nil {
			t.Fatal(err)
		}

		_, err = install.Install(t.Context(), root, staged, false)
		if (err == nil) != ok || !ok && !strings.Contains(err.Error(), "cannot be installed here: it ") {
			t.Errorf("%s: %v", platforms, err)
		}
		if err := staged.Close(); err != nil {
			t.Error(err)
		}
		if left := below(t, root); !ok && len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// A broken program is rejected, and the error names the field. A skill name that is an unsafe path
// is rejected too.
func TestRefusedPrograms(t *testing.T) {
	good := manifest(t, "1.0.0", "[]")
	for want, text := range map[string]string{
		`manifest.json:1:53: version "1" is no semantic version`: strings.Replace(good, "1.0.0", "1", 1),
		`name "../evil" is no slug`:                              strings.Replace(good, `"sums"`, `"../evil"`, 1),
		`is not JSON`:                                            good[1:],
	} {
		root := t.TempDir()
		staged, err := install.Fetch(t.Context(), root, install.Source{From: folder(t, item{"sums/manifest.json", text, 0}, item{"sums/module.ts", module, 0})})
		if err == nil {
			err = errors.Join(errors.New("it was staged"), staged.Close())
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if left := below(t, root); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}
