package plan

import (
	"fmt"
	"slices"

	agentplan "rouse/agent/plan"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/scheduler/schedule"
)

// newChannels opens the configured channels, and the default one that exists without being configured.
func newChannels(cfg *config.Config) (map[string]notify.Channel, error) {
	standard, err := notify.Open(notify.Settings{Kind: config.DefaultChannel})
	if err != nil {
		return nil, err
	}

	// A configured channel of the same name replaces the default one below.
	out := map[string]notify.Channel{config.DefaultChannel: standard}
	for i, n := range cfg.Notifications {
		// A channel that cannot be used keeps its notices, and keeps no run from starting.
		if held := SecretObstacles(cfg, fmt.Sprintf("notifications[%d].", i)); len(held) > 0 {
			out[string(n.Name)] = notify.Unusable(held[0].Text)
			continue
		}
		if out[string(n.Name)], err = notify.Open(notify.Settings{Kind: n.Kind, URL: n.URL, Secret: n.Secret}); err != nil {
			return nil, fmt.Errorf("%s: notification channel %s: %w", n.At, n.Name, err)
		}
	}

	return out, nil
}

// ChannelRules returns when each channel may send: quiet hours, digests, fallbacks.
func ChannelRules(cfg *config.Config, session *notify.Session) map[string]notify.Rules {
	out := map[string]notify.Rules{}
	for _, n := range cfg.Notifications {
		r := notify.Rules{Zone: cfg.Zone(), Fallback: string(n.Fallback), Digest: digestOf(cfg, string(n.Name))}
		if n.QuietHours != "" {
			r.Quiet, _ = schedule.ParseQuiet(n.QuietHours) // a wrong one was refused
		}
		out[string(n.Name)] = r
	}
	// The channel that exists without being configured.
	if _, configured := out[config.DefaultChannel]; !configured {
		if digest := digestOf(cfg, config.DefaultChannel); digest != nil {
			out[config.DefaultChannel] = notify.Rules{Zone: cfg.Zone(), Digest: digest, Session: session}
		}
	}
	return out
}

// digestOf is when a channel sends a summary, nil for never.
func digestOf(cfg *config.Config, channel string) *schedule.Daily {
	digest, err := schedule.ParseDaily(cfg.DigestOf(channel)) // a wrong one was refused
	if err != nil {
		return nil
	}
	return &digest
}

// channelGroups are how channels gather failures.
func channelGroups(cfg *config.Config) map[string]agentplan.Group {
	out := map[string]agentplan.Group{}
	for _, n := range cfg.Notifications {
		out[string(n.Name)] = agentplan.Group{Every: n.Group.Every, Recovery: config.On(n.Group.Recovery)}
	}
	return out
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
