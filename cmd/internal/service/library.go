package service

import (
	"fmt"

	kardianos "github.com/kardianos/service"
)

// byLibrary has kardianos/service bring descriptions to a manager, start and stop. It is told which manager: by itself it looks
// what the first process is, and would write for another manager where that is not systemd, as in a container.
type byLibrary struct{ platform string }

func (b byLibrary) open(s Spec, text string) (kardianos.Service, error) {
	for _, system := range kardianos.AvailableSystems() {
		if system.String() != b.platform {
			continue
		}
		return system.New(nil, &kardianos.Config{
			Name: s.Name, Executable: s.Program,
			// Its templates get our text as one of their values, so that it is written as it was shown.
			Description: text, UserName: text,
			Option: kardianos.KeyValue{"UserService": true, "SystemdScript": "{{Description}}", "LaunchdConfig": "{{UserName}}"},
		})
	}
	return nil, fmt.Errorf("there is no %s on this system", b.platform)
}

func (b byLibrary) do(s Spec, text string, what func(kardianos.Service) error) error {
	l, err := b.open(s, text)
	if err != nil {
		return err
	}
	return what(l)
}

// Install implements Manager.
func (b byLibrary) Install(s Spec, text string) error {
	return b.do(s, text, kardianos.Service.Install)
}

// Uninstall implements Manager.
func (b byLibrary) Uninstall(s Spec) error { return b.do(s, "", kardianos.Service.Uninstall) }

// Start implements Manager.
func (b byLibrary) Start(s Spec) error { return b.do(s, "", kardianos.Service.Start) }

// Stop implements Manager.
func (b byLibrary) Stop(s Spec) error { return b.do(s, "", kardianos.Service.Stop) }

// Restart implements Manager.
func (b byLibrary) Restart(s Spec) error { return b.do(s, "", kardianos.Service.Restart) }
