package tool_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"rouse/agent/tool"
	"rouse/internal/contract"
)

// TestSecret checks that files with names of secrets are refused and files with similar names are
// not (OSA-40).
func TestSecret(t *testing.T) {
	row := contract.Of(t, "OSA-40")
	dir := t.TempDir()
	roots, err := tool.NewRoots(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for list, open := range map[[2]string]bool{{"by their names: ", ". They"}: false, {"They do not refuse ", ", which hold"}: true} {
		for _, name := range row.Between(list[0], list[1]) {
			path := filepath.Join(dir, filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("open"), 0o600)); err != nil {
				t.Fatal(err)
			}
			if text, err := read(roots, name); (text == "open") != open || (err == nil) != open {
				t.Errorf("%s gives %q, %v", name, text, err)
			}
		}
	}
	for _, path := range []string{".env", ".ENV", ".env.local", "a/.env.production", ".envrc", ".env ", ".env.", "server.pem", "id_rsa", "a/id_ed25519", "x.p12", "credentials", "credentials.json",
		".netrc", ".git-credentials", ".ssh/known_hosts", "a/.aws/x", ".GnuPG/x", ".git/config", "a/.git/config", ".git/hooks/pre-commit", ".kube/config", ".docker/config.json", "a\\.ssh\\x"} {
		if runtime.GOOS != "windows" && path == "a\\.ssh\\x" {
			continue
		}
		if !tool.IsSecretPath(path) {
			t.Errorf("%s is no secret", path)
		}
	}
	for _, path := range []string{".env.example", ".env.sample", ".env.template", ".env.dist", "env", ".environment", "id_rsa.md", "keys.txt", "config", "a/config", ".github/config", "credentials.go", "git/config", "."} {
		if tool.IsSecretPath(path) {
			t.Errorf("%s is a secret", path)
		}
	}
}

// TestSecretRefused checks that a secret file is refused by each of its paths, and that it can be
// read if the owner has granted it by its own path.
func TestSecretRefused(t *testing.T) {
	dir := t.TempDir()
	for _, folder := range []string{".ssh", "sub"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	for _, name := range []string{".env", ".env.example", ".ssh/config", "plain"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for link, target := range map[string]string{"notes.txt": ".env", "keys": ".ssh", "other": "plain"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Skip("symbolic links cannot be made here")
		}
	}

	roots, err := tool.NewRoots(dir, nil)
	if err != nil {
		t.Fatal(err)
	}

	var bad *tool.Refusal
	for _, path := range []string{".env", "sub/../.env", filepath.Join(dir, ".env"), ".ssh/config", ".ssh", "notes.txt", "keys/config", "sub/.env"} {
		f, err := roots.Open(path)
		if err == nil {
			f.Close()
		}
		if !errors.As(err, &bad) || bad.Kind != tool.KindRejected {
			t.Errorf("%s: %v", path, err)
		}
	}

	for _, path := range []string{".env.example", "other", "plain"} {
		if _, err := read(roots, path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}

	if p, err := roots.Resolve("keys/authorized_keys", true); err != nil || p.CheckWrite() == nil {
		t.Errorf("a link to a folder of secrets may be written through: %v", err)
	}

	granted, err := tool.NewRoots(dir, []tool.Grant{{Path: filepath.Join(dir, ".env")}, {Path: filepath.Join(dir, ".ssh")}})
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{".env", ".ssh/config"} {
		if text, err := read(granted, path); err != nil || text != "x" {
			t.Errorf("%s, which its owner named: %q %v", path, text, err)
		}
	}
}
