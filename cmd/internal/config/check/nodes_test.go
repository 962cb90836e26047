package check_test

import (
	"os"
	"strings"
	"testing"

	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/yaml"
)

// TestNodes checks the settings that a shared ledger requires, and that its address is never
// shown.
func TestNodes(t *testing.T) {
	t.Parallel()
	const shared = "engine: {postgres: 'postgres://me:hidden-word@db.test/rouse'}\n"
	with := func(more string) string { return strings.Replace(shared, "}", ", "+more+"}", 1) }
	watching := func(agent, job string) string {
		return "agents: [{name: a" + agent + "}]\njobs: [{name: j, agent: a" + job + ", watch: {path: ./in}, playbook: [{call: db_schema}]}]\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"alone":               {watching(", workdir: ./w", ""), ""},
		"a folder":            {shared + watching("", ""), "jobs[0].watch: needs host"},
		"its host":            {shared + watching("", ", host: north"), ""},
		"its agent's":         {shared + watching(", host: north", ""), ""},
		"two hosts":           {shared + watching(", host: north", ", host: south"), "jobs[0].host: is south, and that of its agent a is north"},
		"a workdir":           {shared + "agents: [{name: a, workdir: ./w}]\n", "agents[0].workdir: is "},
		"in the home":         {shared + "home: ./h\nagents: [{name: a, workdir: ./h/w}]\n", ""},
		"shared":              {shared + "agents: [{name: a, workdir: ./w, workdir_shared: true}]\n", ""},
		"where its jobs are":  {shared + watching(", workdir: ./w", ", host: north"), ""},
		"no name":             {shared + watching("", ", host: '-x'"), "is no name of a node"},
		"no address":          {"engine: {postgres: 'db.test/rouse'}\n", "engine.postgres: must be the address"},
		"of no database":      {"engine: {postgres: 'postgres://db.test'}\n", "engine.postgres: must be the address"},
		"empty":               {"engine: {postgres: ''}\n", "engine.postgres: is empty"},
		"of the store":        {"engine: {postgres: 'secret:db'}\n", ""},
		"not in the store":    {"engine: {postgres: 'secret:other'}\n", "the secret other is not set"},
		"continuous copies":   {shared + "replicate: {to: 'file:///mnt/copies'}\n", "replicate: copies a home whose ledger is a file"},
		"large values":        {shared + "node: n\n", ""},
		"in a bucket":         {with("blobs: 's3://bucket/rouse?region=eu-1', access_key: hidden-word, secret_key: 'secret:db'"), ""},
		"in a folder":         {with("blobs: 'file:///mnt/shared/rouse'"), ""},
		"in no bucket":        {with("blobs: 's3://x'"), "engine.blobs: must name a bucket"},
		"of another kind":     {with("blobs: 'https://bucket.test/x'"), "engine.blobs: has the scheme"},
		"with a key":          {with("blobs: 's3://me:hidden-word@bucket/x'"), "engine.blobs: must not have a key"},
		"with half a key":     {with("blobs: 's3://bucket/x', access_key: hidden-word"), "engine.secret_key: must be given together"},
		"a key for a folder":  {with("blobs: 'file:///mnt/x', access_key: hidden-word, secret_key: b"), "engine.access_key: is of s3"},
		"a key for nothing":   {with("access_key: hidden-word, secret_key: b"), "engine.access_key: is of the bucket"},
		"in the home as well": {"home: /h\n" + with("blobs: 'file:///h/values'"), "engine.blobs: lies in the home"},
		"beside a file":       {"engine: {blobs: 's3://bucket/x'}\n", "engine.blobs: needs engine.postgres"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\n"+c.text), map[string]string{"secret:db": "postgres://me:hidden-word@db.test/rouse"})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden-word") {
					t.Errorf("%v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			shown, err := yaml.Show(cfg)
			if err != nil || strings.Contains(string(shown), "hidden-word") {
				t.Errorf("%v\n%s", err, shown)
			}
		})
	}
}

// Alike is equal for nodes with the same files, whatever their folders and names.
func TestAlike(t *testing.T) {
	t.Parallel()
	of := func(text string, name string) string {
		path := configtest.Write(t, name, text)
		cfg, err := configtest.Load(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Sources.Alike()
	}
	one := of("version: 1\nhome: ./a\nnode: north\nagents: [{name: a}]\n", "rouse.yaml")
	if two := of("version: 1\nhome: "+os.TempDir()+"\nagents: [{name: a}]\n", "other.yaml"); one != two {
		t.Errorf("%s and %s", one, two)
	}
	if two := of("version: 1\nhome: ./a\nnode: north\nagents: [{name: b}]\n", "rouse.yaml"); one == two {
		t.Error("other agents make no difference")
	}
}
