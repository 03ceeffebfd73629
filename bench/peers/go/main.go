// The workloads of bench/ for Go: golang.org/x/sync/semaphore and failsafe-go's bulkhead, on goroutines.
package main

import (
	"context"
	"encoding/json"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"golang.org/x/sync/semaphore"
)

type design struct {
	name    string
	try     func() bool // in and out again, if there is room
	acquire func()      // waits; nil: cannot
	release func()
}

func designs(permits int) []design {
	var count atomic.Int64
	sem := semaphore.NewWeighted(int64(permits))
	bh := bulkhead.NewBuilder[any](uint(permits)).WithMaxWaitTime(time.Hour).Build()
	ctx := context.Background()
	return []design{
		{"floor: atomic add + add", func() bool { count.Add(1); count.Add(-1); return true }, nil, nil},
		{"x/sync semaphore", func() bool {
			if !sem.TryAcquire(1) {
				return false
			}
			sem.Release(1)
			return true
		}, func() { _ = sem.Acquire(ctx, 1) }, func() { sem.Release(1) }},
		{"failsafe-go bulkhead", func() bool {
			if !bh.TryAcquirePermit() {
				return false
			}
			bh.ReleasePermit()
			return true
		}, func() { _ = bh.AcquirePermit(ctx) }, func() { bh.ReleasePermit() }},
	}
}

type row struct {
	Workload string    `json:"workload"`
	Threads  int       `json:"threads"`
	Permits  int       `json:"permits"`
	Section  string    `json:"section"`
	Design   string    `json:"design"`
	Language string    `json:"language"`
	Unit     string    `json:"unit"`
	Median   float64   `json:"median"`
	Rounds   []float64 `json:"rounds"`
	MaxMin   float64   `json:"max/min,omitempty"`
	WorstMs  float64   `json:"worst ms,omitempty"`
}

func median(v []float64) float64 {
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	return s[len(s)/2]
}

func emit(r row) {
	r.Language, r.Median = "Go", median(r.Rounds)
	_ = json.NewEncoder(os.Stdout).Encode(r)
}

// ns per try over all goroutines, for one window.
func window(threads int, length time.Duration, try func() bool) float64 {
	var ops atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for t := 0; t < threads; t++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			n := int64(0)
			for time.Since(start) < length {
				for i := 0; i < 200; i++ {
					try()
				}
				n += 200
			}
			ops.Add(n)
		}()
	}
	wg.Wait()
	return float64(time.Since(start).Nanoseconds()) / float64(ops.Load())
}

func tries(workload string, threads, permits int, section string, full bool) {
	all := designs(permits)
	rounds := make([][]float64, len(all))
	for round := 0; round < 3; round++ {
		windows := make([][]float64, len(all))
		for i := 0; i < 7; i++ {
			for d, one := range all {
				if full && one.acquire == nil {
					continue
				}
				if full {
					one.acquire()
				}
				windows[d] = append(windows[d], window(threads, 20*time.Millisecond, one.try))
				if full {
					one.release()
				}
			}
		}
		for d := range all {
			if windows[d] != nil {
				rounds[d] = append(rounds[d], median(windows[d]))
			}
		}
	}
	for d, one := range all {
		if rounds[d] != nil {
			emit(row{Workload: workload, Threads: threads, Permits: permits, Section: section, Design: one.name, Unit: "ns", Rounds: rounds[d]})
		}
	}
}

func burn(steps int) uint64 {
	x := uint64(steps)
	for i := 0; i < steps; i++ {
		x = x*3 + 1
	}
	return x
}

var sink atomic.Uint64

func stepsPerUs() int {
	best := 0.0
	for i := 0; i < 50; i++ {
		start := time.Now()
		sink.Store(burn(20000))
		best = max(best, 20000/(float64(time.Since(start).Nanoseconds())/1000))
	}
	return int(best)
}

func saturate(threads, permits int, name string, section func()) {
	all := designs(permits)[1:]
	rounds := make([][]float64, len(all))
	fair := make([][]float64, len(all))
	worst := make([]float64, len(all))
	for round := 0; round < 3; round++ {
		for d, one := range all {
			counts, gaps := make([]float64, threads), make([]time.Duration, threads)
			var wg sync.WaitGroup
			start := time.Now()
			for t := 0; t < threads; t++ {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for last := time.Now(); last.Sub(start) < 200*time.Millisecond; {
						one.acquire()
						section()
						one.release()
						now := time.Now()
						gaps[t] = max(gaps[t], now.Sub(last))
						last = now
						counts[t]++
					}
				}()
			}
			wg.Wait()
			wall := float64(time.Since(start).Nanoseconds())
			sum := 0.0
			sort.Float64s(counts)
			for t := range counts {
				sum += counts[t]
				worst[d] = max(worst[d], float64(gaps[t].Nanoseconds())/1e6)
			}
			rounds[d] = append(rounds[d], wall/1000/sum)
			fair[d] = append(fair[d], counts[threads-1]/max(counts[0], 1))
		}
	}
	for d, one := range all {
		emit(row{Workload: "saturation", Threads: threads, Permits: permits, Section: name, Design: one.name, Unit: "us",
			Rounds: rounds[d], MaxMin: median(fair[d]), WorstMs: worst[d]})
	}
}

func main() {
	for _, threads := range []int{1, 2, 8} {
		tries("admit", threads, 1000, "empty", false)
	}
	for _, threads := range []int{1, 2} {
		tries("reject", threads, 1, "", true)
	}
	us := stepsPerUs()
	saturate(8, 2, "empty", func() {})
	saturate(8, 2, "1 us of work", func() { sink.Store(burn(us)) })
	saturate(8, 2, "20 us of work", func() { sink.Store(burn(20 * us)) })
	saturate(16, 4, "1 ms of sleep", func() { time.Sleep(time.Millisecond) })
}
