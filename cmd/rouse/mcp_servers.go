package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newMCPServers(at *place) *cobra.Command {
	var asJSON bool
	list := func(cmd *cobra.Command, _ []string) error { return listMCPServers(cmd, at, asJSON) }
	cmd := &cobra.Command{
		Use:   "mcp-servers",
		Short: "Lists the MCP servers whose tools agents may have, approves their tools, and signs in there",
		Long: `Lists the servers of the Model Context Protocol that are configured (mcp:), with their tools.
An agent has a tool of a server once you have approved it, as it stands: one that is new, or whose
description or arguments have changed since, is off until you approve it again.

This lists what was seen last, and starts nothing. (rouse mcp is another thing: it lets other
programs ask rouse.)`,
		Example: `  rouse mcp-servers show github
  rouse mcp-servers approve github
  rouse mcp-servers approve github search_issues get_issue`,
		Args: cobra.NoArgs,
		RunE: verb(list),
	}
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(
		&cobra.Command{Use: "list", Short: "Lists the MCP servers", Args: cobra.NoArgs, RunE: verb(list)},
		newMCPShow(at, &asJSON), newMCPApprove(at, &asJSON), newMCPRevoke(at, &asJSON), newMCPSignIn(at, &asJSON),
	)
	return cmd
}

func mcpPath(name, what string) string { return "/v1/mcp-servers/" + url.PathEscape(name) + "/" + what }

func mcpServers(ctx context.Context, s *session) (out []api.MCPServer, err error) {
	return out, s.Get(ctx, "/v1/mcp-servers", nil, &out)
}

func listMCPServers(cmd *cobra.Command, at *place, asJSON bool) error {
	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	servers, err := mcpServers(cmd.Context(), s)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), servers)
	}
	if len(servers) == 0 {
		return sayf(cmd.OutOrStdout(), "no MCP server is configured; to give one to an agent: mcp: [{name: NAME, argv: [PROGRAM]}], and mcp: [NAME] of the agent\n")
	}

	var rows [][]string
	for _, one := range servers {
		rows = append(rows, []string{one.Name, cmp.Or(strings.Join(one.Agents, ", "), "–"), mcpCounts(one), when(one.SeenAt, s.now()), one.Where})
	}
	return table(cmd.OutOrStdout(), "NAME AGENTS TOOLS SEEN WHERE", rows)
}

// mcpCounts says how many tools of a server there are of each state.
func mcpCounts(s api.MCPServer) string {
	if s.Problem != "" {
		return s.Problem
	}
	counts := map[string]int{}
	for _, t := range s.Tools {
		counts[t.Status]++
	}
	var out []string
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d %s", counts[status], status))
	}
	if s.SignIn == "unauthorized" {
		out = append(out, "not signed in")
	}
	return cmp.Or(strings.Join(out, ", "), map[bool]string{true: "never asked", false: "none"}[s.SeenAt.IsZero()])
}

func newMCPShow(at *place, asJSON *bool) *cobra.Command {
	var kept bool
	var as string
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Starts an MCP server to see which tools it has, and shows them with what has changed",
		Long: `Starts an MCP server, or asks at its address, and shows its tools as models would read them, with
what has changed since you approved them. Whatever it says is its own word, also of what its tools do.

Its program is started without folders and without a network. One that does not start so can be given
those of an agent with --as: only for a program that you trust with them. What it may write there is
labelled as untrusted.`,
		Args: cobra.ExactArgs(1),
		RunE: withSession(at.open, func(cmd *cobra.Command, args []string, s *session) error {
			server, err := lookAtMCP(cmd.Context(), s, args[0], as, kept)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), server)
			}
			return printMCPServer(cmd.OutOrStdout(), server)
		}),
	}
	cmd.Flags().BoolVar(&kept, "kept", false, "show what was seen last, and start nothing")
	addLookAs(cmd, &as)
	return cmd
}

func addLookAs(cmd *cobra.Command, as *string) {
	cmd.Flags().StringVar(as, "as", "", "start its program with the folders and the network that runs of this `agent` give it")
}

// lookAtMCP is a server as it is now, or as it was seen last.
func lookAtMCP(ctx context.Context, s *session, name, as string, kept bool) (out api.MCPServer, err error) {
	if !kept {
		return out, s.Post(ctx, mcpPath(name, "look"), api.MCPLook{As: as}, &out)
	}
	all, err := mcpServers(ctx, s)
	if err != nil {
		return out, err
	}
	var names []string
	for _, one := range all {
		if one.Name == name {
			return one, nil
		}
		names = append(names, one.Name)
	}
	return out, usagef("%s", text.NoSuch("MCP server", name, names))
}

func printMCPServer(w io.Writer, s api.MCPServer) error {
	fmt.Fprintf(w, "%s  %s\n", s.Name, text.OneLine(s.Where))
	if s.Says != "" {
		fmt.Fprintf(w, "  it calls itself %s\n", text.OneLine(s.Says))
	}
	for _, t := range s.Tools {
		if err := printMCPTool(w, t); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\n%s: %s\n", text.Plural(len(s.Tools), "tool"), mcpCounts(s))
	if s.Refused != "" {
		fmt.Fprintf(w, "warning: all its calls are refused: %s\n", text.OneLine(s.Refused))
	}
	return nil
}

func printMCPTool(w io.Writer, t api.MCPTool) error {
	fmt.Fprintf(w, "\n%s  (%s)\n", text.OneLine(t.Name), t.Status)
	switch {
	case t.Why != "":
		fmt.Fprintf(w, "  it cannot be used: %s\n", text.OneLine(t.Why))
	case t.Difference != "":
		fmt.Fprintf(w, "%s\n", indented(t.Difference))
	case t.Status != "approved" || len(t.Schema) > 0:
		fmt.Fprintf(w, "%s\n", indented(t.Description))
		if len(t.Schema) > 0 {
			fmt.Fprintf(w, "  arguments: %s\n", text.Visible(string(t.Schema)))
		}
	default:
		fmt.Fprintf(w, "%s\n", indented(text.Truncate(t.Description, 200)))
	}
	if t.Annotations != "" {
		fmt.Fprintf(w, "  the server says of it: %s (nothing is decided by that)\n", text.OneLine(t.Annotations))
	}
	return nil
}

// indented is a text of several lines, safe for a terminal.
func indented(s string) string {
	lines := strings.Split(strings.TrimSuffix(text.Visible(s), "\n"), "\n")
	return "  " + strings.Join(lines, "\n  ")
}

func newMCPApprove(at *place, asJSON *bool) *cobra.Command {
	var yes bool
	var as string
	cmd := &cobra.Command{
		Use:   "approve NAME [TOOL…]",
		Short: "Shows the tools of an MCP server as they are now, and approves them for the agents that have it",
		Long: `Shows the tools of an MCP server as they are now, and approves all of them, or those that are named,
for the agents that have the server. What is approved is what is shown: its description and its
arguments. Where they change, the tool is off until it is approved again.

To show them, its program is started without folders and without a network; see --as.`,
		Args: cobra.MinimumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			return approveMCP(cmd, at, args[0], args[1:], as, yes, *asJSON)
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "approve without being asked")
	addLookAs(cmd, &as)
	return cmd
}

func approveMCP(cmd *cobra.Command, at *place, name string, tools []string, as string, yes, asJSON bool) error {
	s, err := at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()
	server, err := lookAtMCP(cmd.Context(), s, name, as, false)
	if err != nil {
		return err
	}

	in := api.MCPApproval{Shown: map[string]string{}}
	for _, t := range tools {
		in.Tools = append(in.Tools, strings.TrimPrefix(t, name+"__"))
	}
	shown := server
	shown.Tools = nil
	for _, t := range server.Tools {
		in.Shown[t.Tool] = t.Hash
		if len(in.Tools) == 0 || slices.Contains(in.Tools, t.Tool) {
			shown.Tools = append(shown.Tools, t)
		}
	}
	if !asJSON {
		if err := printMCPServer(cmd.OutOrStdout(), shown); err != nil {
			return err
		}
	}
	if !yes {
		ok, err := confirm(cmd, "Approve them as they are?", "nothing was approved")
		if err != nil || !ok {
			return err
		}
	}

	var out api.MCPApproved
	if done, err := s.send(cmd, asJSON, mcpPath(name, "approve"), in, &out); done || err != nil {
		return err
	}
	for _, t := range slices.Sorted(maps.Keys(out.Unusable)) {
		fmt.Fprintf(cmd.OutOrStdout(), "not approved, for it cannot be used: %s: %s\n", text.OneLine(t), text.OneLine(out.Unusable[t]))
	}
	return sayf(cmd.OutOrStdout(), "%s approved: %s\n", text.Plural(len(out.Tools), "tool"), cmp.Or(text.OneLine(strings.Join(out.Tools, ", ")), "–"))
}

func newMCPRevoke(at *place, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME [TOOL…]",
		Short: "Takes back the approval of the tools of an MCP server, of all or of some",
		Args:  cobra.MinimumNArgs(1),
		RunE: withSession(at.open, func(cmd *cobra.Command, args []string, s *session) error {
			var in api.MCPApproval
			for _, t := range args[1:] {
				in.Tools = append(in.Tools, strings.TrimPrefix(t, args[0]+"__"))
			}
			var out api.MCPApproved
			if err := s.Post(cmd.Context(), mcpPath(args[0], "revoke"), in, &out); err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), out)
			}
			return sayf(cmd.OutOrStdout(), "%s not approved any more: %s\n", text.Plural(len(out.Tools), "tool"), cmp.Or(text.OneLine(strings.Join(out.Tools, ", ")), "–"))
		}),
	}
}

func newMCPSignIn(at *place, asJSON *bool) *cobra.Command {
	var reply string
	cmd := &cobra.Command{
		Use:   "sign-in NAME",
		Short: "Gives the link with which you sign in at an MCP server that asks who you are",
		Long: `Asks an MCP server where one signs in, registers rouse there where you have not, and gives the link to
open. A running daemon hears when your browser comes back; else give the address that it was sent
to with --reply. The tokens are kept as secrets are, and renewed by themselves; rouse skills sign-ins
lists them and forgets them.`,
		Args: cobra.ExactArgs(1),
		RunE: withSession(at.open, func(cmd *cobra.Command, args []string, s *session) error {
			var out api.MCPSignIn
			if err := s.Post(cmd.Context(), mcpPath(args[0], "sign-in"), api.MCPReply{Address: reply}, &out); err != nil {
				return err
			}
			switch {
			case *asJSON:
				return printJSON(cmd.OutOrStdout(), out)
			case out.SignedIn:
				return sayf(cmd.OutOrStdout(), "signed in at %s; look at its tools: rouse mcp-servers approve %[1]s\n", args[0])
			case out.Link == "":
				return errors.New("there is no link")
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Open this and sign in:\n\n  %s\n\n", text.OneLine(out.Link))
			if !s.daemon {
				fmt.Fprintf(cmd.OutOrStdout(), "No daemon hears when your browser comes back. Copy the address that it is sent to, and give it with:\n  rouse mcp-servers sign-in %s --reply ADDRESS\n", args[0])
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&reply, "reply", "", "the `address` that the browser was sent to")
	return cmd
}
