package shell

import "testing"

// OSL-18: what installs software is known however it is written plainly.
func TestInstalls(t *testing.T) {
	for command, want := range map[string]bool{
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
		"ls":                                        false,
	} {
		l, err := parse(command)
		if err != nil {
			t.Fatal(err)
		}
		if got := installsSoftware(l.tree); got != want {
			t.Errorf("%s: %v", command, got)
		}
	}
}
