//! The workloads of bench/ for Rust: tokio's Semaphore. try_acquire on threads, acquire on tasks of a runtime with
//! as many workers as cores.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

type Try = Arc<dyn Fn(u32) + Send + Sync>; // that number of times: in and out again, if there is room

fn median(v: &[f64]) -> f64 {
    let mut s = v.to_vec();
    s.sort_by(|a, b| a.total_cmp(b));
    s[s.len() / 2]
}

fn emit(workload: &str, threads: usize, permits: usize, section: &str, design: &str, unit: &str, rounds: &[f64], more: &str) {
    let list: Vec<String> = rounds.iter().map(|r| r.to_string()).collect();
    println!(
        "{{\"workload\":\"{workload}\",\"threads\":{threads},\"permits\":{permits},\"section\":\"{section}\",\"design\":\"{design}\",\
         \"language\":\"Rust\",\"unit\":\"{unit}\",\"median\":{},\"rounds\":[{}]{more}}}",
        median(rounds),
        list.join(",")
    );
}

fn window(threads: usize, batch: &Try) -> f64 {
    let ops = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                let mut n = 0;
                while start.elapsed() < Duration::from_millis(20) {
                    batch(200);
                    n += 200;
                }
                ops.fetch_add(n, Ordering::Relaxed);
            });
        }
    });
    start.elapsed().as_nanos() as f64 / ops.load(Ordering::Relaxed) as f64
}

fn tries(workload: &str, threads: usize, permits: usize, section: &str, designs: &[(&str, Try)]) {
    let mut rounds = vec![vec![]; designs.len()];
    for _ in 0..3 {
        let mut windows = vec![vec![]; designs.len()];
        for _ in 0..7 {
            for (i, (_, batch)) in designs.iter().enumerate() {
                windows[i].push(window(threads, batch));
            }
        }
        for i in 0..designs.len() {
            rounds[i].push(median(&windows[i]));
        }
    }
    for (i, (name, _)) in designs.iter().enumerate() {
        emit(workload, threads, permits, section, name, "ns", &rounds[i], "");
    }
}

fn tokio_try(semaphore: Arc<Semaphore>) -> Try {
    Arc::new(move |n| {
        for _ in 0..n {
            let _ = std::hint::black_box(semaphore.try_acquire());
        }
    })
}

fn floor() -> Try {
    let count = AtomicU64::new(0);
    Arc::new(move |n| {
        for _ in 0..n {
            count.fetch_add(1, Ordering::Acquire);
            count.fetch_sub(1, Ordering::Release);
        }
    })
}

fn burn(steps: u64) {
    let mut x = steps;
    for _ in 0..steps {
        x = std::hint::black_box(x.wrapping_mul(3).wrapping_add(1));
    }
}

fn steps_per_us() -> u64 {
    let mut best = 0.0f64;
    for _ in 0..50 {
        let start = Instant::now();
        burn(20_000);
        best = best.max(20_000.0 / (start.elapsed().as_nanos() as f64 / 1000.0));
    }
    best as u64
}

#[derive(Clone, Copy)]
enum Section {
    Burn(u64),
    SleepMs(u64),
}

fn saturate(threads: usize, permits: usize, name: &str, section: Section) {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(cores).enable_time().build().unwrap();
    let (mut rounds, mut fair, mut worst) = (vec![], vec![], 0.0f64);
    for _ in 0..3 {
        let semaphore = Arc::new(Semaphore::new(permits));
        let start = Instant::now();
        let tasks: Vec<_> = (0..threads)
            .map(|_| {
                let semaphore = semaphore.clone();
                runtime.spawn(async move {
                    let (mut count, mut gap, mut last) = (0u64, Duration::ZERO, Instant::now());
                    while start.elapsed() < Duration::from_millis(200) {
                        let permit = semaphore.acquire().await.unwrap();
                        match section {
                            Section::Burn(steps) => burn(steps),
                            Section::SleepMs(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                        }
                        drop(permit);
                        let now = Instant::now();
                        gap = gap.max(now - last);
                        last = now;
                        count += 1;
                    }
                    (count, gap)
                })
            })
            .collect();
        let done: Vec<_> = tasks.into_iter().map(|t| runtime.block_on(t).unwrap()).collect();
        let sum: u64 = done.iter().map(|d| d.0).sum();
        rounds.push(start.elapsed().as_nanos() as f64 / 1000.0 / sum as f64);
        let (most, least) = (done.iter().map(|d| d.0).max().unwrap(), done.iter().map(|d| d.0).min().unwrap());
        fair.push(most as f64 / least.max(1) as f64);
        worst = done.iter().fold(worst, |w, d| w.max(d.1.as_secs_f64() * 1000.0));
    }
    let more = format!(",\"max/min\":{},\"worst ms\":{}", median(&fair), worst);
    emit("saturation", threads, permits, name, "tokio Semaphore", "us", &rounds, &more);
}

fn main() {
    for threads in [1, 2, 8] {
        let designs = [
            ("floor: fetch_add + fetch_sub", floor()),
            ("tokio Semaphore", tokio_try(Arc::new(Semaphore::new(1000)))),
        ];
        tries("admit", threads, 1000, "empty", &designs);
    }
    for threads in [1, 2] {
        tries("reject", threads, 1, "", &[("tokio Semaphore", tokio_try(Arc::new(Semaphore::new(0))))]);
    }
    let us = steps_per_us();
    saturate(8, 2, "empty", Section::Burn(0));
    saturate(8, 2, "1 us of work", Section::Burn(us));
    saturate(8, 2, "20 us of work", Section::Burn(20 * us));
    saturate(16, 4, "1 ms of sleep", Section::SleepMs(1));
}
