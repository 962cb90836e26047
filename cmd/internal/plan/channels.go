package plan

import (
	"fmt"
	"slices"

	agentplan "rouse/agent/plan"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/scheduler/schedule"
)

// newChannels opens the configured channels and the default channel, which needs no configuration.
func newChannels(cfg *config.Config) (map[string]notify.Channel, error) {
	standard, err := notify.Open(notify.Settings{Kind: config.DefaultChannel})
	if err != nil {
		return nil, err
	}

	// A configured channel with the same name replaces the default channel.
	out := map[string]notify.Channel{config.DefaultChannel: standard}
	for i, n := range cfg.Notifications {
		// An unusable channel keeps its notices and does not block runs.
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

// ChannelRules returns the rules of each channel: quiet hours, digests and fallbacks.
func ChannelRules(cfg *config.Config, session *notify.Session) map[string]notify.Rules {
	out := map[string]notify.Rules{}
	for _, n := range cfg.Notifications {
		r := notify.Rules{Zone: cfg.Zone(), Fallback: string(n.Fallback), Digest: digestOf(cfg, string(n.Name))}
		if n.QuietHours != "" {
			r.Quiet, _ = schedule.ParseQuiet(n.QuietHours) // checked when the configuration was loaded
		}
		out[string(n.Name)] = r
	}
	// The default channel works without configuration.
	if _, configured := out[config.DefaultChannel]; !configured {
		if digest := digestOf(cfg, config.DefaultChannel); digest != nil {
			out[config.DefaultChannel] = notify.Rules{Zone: cfg.Zone(), Digest: digest, Session: session}
		}
	}
	return out
}

// digestOf returns the time of a channel's daily digest, or nil if it has none.
func digestOf(cfg *config.Config, channel string) *schedule.Daily {
	digest, err := schedule.ParseDaily(cfg.DigestOf(channel)) // checked when the configuration was loaded
	if err != nil {
		return nil
	}
	return &digest
}

// channelGroups returns how each channel groups failures.
func channelGroups(cfg *config.Config) map[string]agentplan.Group {
	out := map[string]agentplan.Group{}
	for _, n := range cfg.Notifications {
		out[string(n.Name)] = agentplan.Group{Every: n.Group.Every, Recovery: config.On(n.Group.Recovery)}
	}
	return out
}

// channelNames returns the channel names for prompts: the default channel first, then in the order
// of the configuration.
func channelNames(cfg *config.Config) []string {
	names := []string{config.DefaultChannel}
	for _, n := range cfg.Notifications {
		if !slices.Contains(names, string(n.Name)) {
			names = append(names, string(n.Name))
		}
	}

	return names
}
