//go:build unix

package daemon

import (
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
	"rouse/skills"
	"rouse/skills/install"
)

// The page of skills shows the same as the commands: both kinds of skills, requested access, docs
// and tags.
func TestSkillsAreServed(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{
		"rouse.yaml":           "home: ./home\nskills: {roots: [{path: ./team}]}\nagents: [{name: ann}]\n",
		"team/words/SKILL.md":  "---\nname: words\ndescription: Counts words.\n---\nCount them.\n",
		"team/broken/SKILL.md": "---\nname: broken\n---\n",
		"team/index.json":      `[{"name": "sums", "description": "x", "version": "0.1.0", "author": "a", "folderPath": "sums", "tags": ["money"]}]`,
	})
	if _, err := (skills.Scaffold{Name: "sums", Mode: skills.ModeFlow, Author: "a"}).Write(filepath.Join(dir, "team")); err != nil {
		t.Fatal(err)
	}

	cfg, err := plan.Load(filepath.Join(dir, "rouse.yaml"), "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), Options{Home: string(cfg.Home), Config: cfg, Logger: logging.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	client := api.InProcess(d.Handler)

	var all install.Inventory
	if err := client.Get(t.Context(), "/v1/skills", nil, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Skills) != 2 || all.Skills[0].Name != "sums" || all.Skills[0].Kind != skills.KindModule || all.Skills[1].Kind != skills.KindInstructions || len(all.Problems) != 1 {
		t.Errorf("%+v", all)
	}

	var one install.Detail
	if err := client.Get(t.Context(), "/v1/skills/sums", nil, &one); err != nil {
		t.Fatal(err)
	}
	if one.Docs == "" || one.Instructions != "" || !slices.Equal(one.Tags, []string{"money"}) || !slices.Contains(one.Terms, skills.Term{What: "asks people", Text: "yes"}) {
		t.Errorf("%+v", one)
	}
	one = install.Detail{}
	if err := client.Get(t.Context(), "/v1/skills/words", nil, &one); err != nil || one.Instructions != "Count them." {
		t.Errorf("%+v, %v", one, err)
	}

	var failure *api.Error
	if err := client.Get(t.Context(), "/v1/skills/sum", nil, &one); !errors.As(err, &failure) || failure.Status != http.StatusNotFound {
		t.Errorf("%v", err)
	}
}
