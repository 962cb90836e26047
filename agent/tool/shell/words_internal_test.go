package shell

import (
	"fmt"
	"testing"

	"rouse/internal/contract"
)

// TestResultInWords checks the short name of a program and the number of lines of its output, in
// whatever pieces they are written.
func TestResultInWords(t *testing.T) {
	for command, want := range map[string]string{
		"./backup.sh --all":         "backup.sh",
		"/usr/local/bin/backup.sh":  "backup.sh",
		"bash tools/backup.sh":      "backup.sh",
		"nice -n 5 python3 tidy.py": "tidy.py",
		"env A=1 ls -la":            "ls",
		"sudo":                      "sudo",
		"tar c . |\n gzip > a.gz":   "tar c . | gzip > a.gz",
		"echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; echo b": "echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…",
	} {
		l, err := parse(command)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.name(); got != want {
			t.Errorf("%s is %q, want %q", command, got, want)
		}
	}

	for _, c := range []struct {
		pieces []string
		lines  int64
	}{{nil, 0}, {[]string{""}, 0}, {[]string{"a"}, 1}, {[]string{"a\n"}, 1}, {[]string{"a", "\n", "b"}, 2}, {[]string{"a\nb\n", ""}, 2}, {[]string{"\n\n"}, 2}} {
		o := NewOutput(10)
		for _, piece := range c.pieces {
			fmt.Fprint(o, piece)
		}
		if got := o.Lines(); got != c.lines {
			t.Errorf("%q has %d lines, want %d", c.pieces, got, c.lines)
		}
	}
}

// TestInstalls: OSL-18, plainly written commands that install software are recognized.
func TestInstalls(t *testing.T) {
	row := contract.Of(t, "OSL-18")
	commands := map[string]bool{
		"npm install left-pad":                      true,
		"npm --silent ci":                           true,
		"npm run build":                             false,
		"pip3 install -r requirements.txt":          true,
		"python3 -m pip install x":                  true,
		"python3 install.py":                        false,
		"sudo apt-get -y install jq":                true,
		"/usr/bin/apt-get update":                   false,
		"cd sub && cargo install ripgrep | tee log": true,
		"pacman -Syu jq":                            true,
		"pacman -Q":                                 false,
		"npx cowsay":                                true,
		"go build ./...":                            false,
		"go install ./...":                          true,
		"echo npm install":                          false,
		"pip3.12 install x":                         true,
		"py -3 -m pip install x":                    true,

		// Behind wrappers.
		"sh -c 'npm install left-pad'":                     true,
		"bash -lc \"cd a && npm ci\"":                      true,
		"bash -o pipefail -c 'true; npm i x | tee log'":    true,
		"busybox sh -c 'npm install x'":                    true,
		"sh -c \"bash -c 'pip install x'\"":                true,
		"eval npm install x":                               true,
		"env A=1 npm install x":                            true,
		"env -u HOME -C /tmp npm install x":                true,
		"env -S 'npm install x'":                           true,
		"sudo -u root npm install x":                       true,
		"timeout \"$T\" npm install x":                     true,
		"nice -n 5 timeout -k 1 10m npm install x":         true,
		"xargs -n 1 npm install":                           true,
		"xargs -I {} sh -c 'npm install {}'":               true,
		"find . -name package.json -execdir npm install ;": true,
		"find . -exec sh -c 'npm ci' ';'":                  true,
		"flock lock -c 'npm install x'":                    true,
		"flock -w 5 lock npm install x":                    true,
		"su -c 'apt-get install jq' root":                  true,
		"trap 'npm install x' EXIT":                        true,
		"watch 'npm install x'":                            true,
		"true && (npm install x &)":                        true,
		"echo $(npm install x)":                            true,
		"f() { npm install x; }; f":                        true,
		"bash <<'E'\nnpm install x\nE":                     true,
		"sh <<< 'npm install x'":                           true,
		"echo 'npm install x' | sh":                        true,
		"printf 'npm install %s' x | sudo sh | tee log":    true,

		"sh -c 'npm run build'":              false,
		"bash install":                       false,
		"sh -c 'echo npm install'":           false,
		"sudo echo npm install":              false,
		"xargs grep 'npm install'":           false,
		"find . -name install -exec ls {} ;": false,
		"echo 'npm install x' | cat":         false,
		"cat <<'E'\nnpm install x\nE":        false,
		"git commit -m 'npm install x'":      false,
		"timeout 5 go build ./...":           false,
		"ls":                                 false,
	}
	for _, install := range row.Between("covers them: ", ", also behind") {
		commands[install+" x"] = true
		for _, before := range row.Between("also behind ", ". They") {
			commands[before+" "+install+" x"] = true
		}
	}
	for command, want := range commands {
		l, err := parse(command)
		if err != nil {
			t.Fatal(err)
		}
		if got := installsSoftware(l.tree, maxNested); got != want {
			t.Errorf("%s: %v", command, got)
		}
	}
}
