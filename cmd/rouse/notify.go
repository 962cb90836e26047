package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
)

func newNotify(at *place) *cobra.Command {
	var channel string
	cmd := &cobra.Command{
		Use:   "notify TEXT",
		Short: "Tries a notification channel",
		Args:  cobra.MinimumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			s, err := at.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()

			if err := s.Post(cmd.Context(), "/v1/notices", api.NotifyRequest{Channel: channel, Text: strings.Join(args, " ")}, nil); err != nil {
				return err
			}

			_, err = fmt.Fprintf(cmd.OutOrStdout(), "sent to %s\n", channel)
			return err
		}),
	}

	cmd.Flags().StringVar(&channel, "channel", config.DefaultChannel, "`name` of the channel")
	return cmd
}
