package daemon

import (
	"fmt"
	"slices"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
)

// newChannels opens the configured channels, and the default one that exists without being configured.
func newChannels(cfg *config.Config) (map[string]notify.Channel, error) {
	standard, err := notify.Open(config.DefaultChannel)
	if err != nil {
		return nil, err
	}

	// A configured channel of the same name replaces the default one below.
	out := map[string]notify.Channel{config.DefaultChannel: standard}
	for _, n := range cfg.Notifications {
		if out[string(n.Name)], err = notify.Open(n.Kind); err != nil {
			return nil, fmt.Errorf("%s: notification channel %s: %w", n.At, n.Name, err)
		}
	}

	return out, nil
}

// channelNames are in the order in which models read them: the default one, then as configured.
func channelNames(cfg *config.Config) []string {
	names := []string{config.DefaultChannel}
	for _, n := range cfg.Notifications {
		if !slices.Contains(names, string(n.Name)) {
			names = append(names, string(n.Name))
		}
	}

	return names
}
