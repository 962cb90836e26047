package main

import (
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
)

func newNotify(at *place) *cobra.Command {
	var channel string
	cmd := &cobra.Command{
		Use:   "notify TEXT",
		Short: "Tries a notification channel",
		Args:  cobra.MinimumNArgs(1),
		RunE: withSession(at.open, func(cmd *cobra.Command, args []string, s *session) error {
			var sent api.NotifySent
			if err := s.Post(cmd.Context(), "/v1/notices", api.NotifyRequest{Channel: channel, Text: strings.Join(args, " ")}, &sent); err != nil {
				return err
			}

			return sayf(cmd.OutOrStdout(), "sent to %s\n", sent.Channel)
		}),
	}

	cmd.Flags().StringVar(&channel, "channel", "", "`name` of the channel, the default channel if empty")
	return cmd
}
