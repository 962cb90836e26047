package plan

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"rouse/agent"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/notify"
)

// TestChannelsAreOfTheirKind checks that each kind in the schema opens a channel of that kind. No
// kind may fall back to the desktop channel.
func TestChannelsAreOfTheirKind(t *testing.T) {
	t.Parallel()
	path := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": "notifications: [{name: phone, kind: desktop}, {name: alarm, kind: desktop}]\n"}), "rouse.yaml")
	cfg, err := load.Config(yaml.Options{Path: path, Home: t.TempDir()}, agent.Specs())
	if err != nil {
		t.Fatal(err)
	}

	p, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"desktop", "phone", "alarm"}; !slices.Equal(p.Runner.Channels, want) || len(p.Channels) != len(want) {
		t.Errorf("channels %q and %d opened, want %q", p.Runner.Channels, len(p.Channels), want)
	}

	cfg.Notifications[1].Kind = "pigeon"
	if p, err := New(cfg, slog.New(slog.DiscardHandler)); err == nil {
		t.Errorf("a channel of a kind that nobody makes became %T", p.Channels["alarm"])
	}

	for _, kind := range configuredKinds(t) {
		url := "https://127.0.0.1:1/x"
		if kind == "url" {
			url = "ntfy://127.0.0.1:1/topic"
		}
		if _, err := notify.Open(notify.Settings{Kind: kind, URL: url, Secret: "a secret of some length"}); err != nil {
			t.Errorf("the configuration accepts a kind that cannot be opened: %v", err)
		}
	}
}

// configuredKinds returns the values of `notifications: kind:` in the schema.
func configuredKinds(t *testing.T) []string {
	t.Helper()
	text, err := yaml.Schema()
	if err != nil {
		t.Fatal(err)
	}

	var schema struct {
		Properties struct {
			Notifications struct {
				Items struct {
					Properties struct {
						Kind struct {
							AnyOf []struct{ Enum []string }
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}

	kinds := schema.Properties.Notifications.Items.Properties.Kind.AnyOf[0].Enum
	if !slices.Contains(kinds, config.DefaultChannel) {
		t.Fatalf("kinds of the schema: %q", kinds)
	}
	return kinds
}
