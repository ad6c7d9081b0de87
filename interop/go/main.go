// The checks of franz-go: kgo produces, consumes by partition and in groups, and transacts; kadm administers.
// Then those of sarama: quotas, throttling and features.
// Prints a line for each check and `done` at the end, as interop/lib.sh wants it.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const checkLimit = 20 * time.Second

type check struct {
	name string
	run  func(ctx context.Context, address string) error
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == "telemetry" {
		if err := workUntilTold(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go-checks ADDRESS, or go-checks telemetry ADDRESS TOPIC")
		os.Exit(2)
	}
	address := os.Args[1]
	for _, each := range slices.Concat(codecChecks(), groupChecks, adminChecks, saramaChecks) {
		ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
		if err := each.run(ctx, address); err != nil {
			fmt.Printf("FAILED %s: %s\n", each.name, strings.Join(strings.Fields(err.Error()), " "))
		} else {
			fmt.Printf("ok %s\n", each.name)
		}
		cancel()
	}
	fmt.Println("done")
}

func connect(address string, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(address))...)
}

func withAdmin(address string, body func(client *kgo.Client, admin *kadm.Client) error) error {
	client, err := connect(address, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	return body(client, kadm.NewClient(client))
}

func same[T comparable](what string, found, expected T) error {
	if found != expected {
		return fmt.Errorf("%s is %v, not %v", what, found, expected)
	}
	return nil
}

// The first that is not nil.
func first(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}
