/* gate.pml - the protocol of the line (src/gate/slow_path.h) in small: three callers of given tiers, somebody who may
   resize and close, some of them timing out, heads starving at any moment. Exhaustive; run_spin runs it in several shapes.

   An operation on the word is one step, a section under the lock is many: others pass and release in between. Memory
   orders and futexes are Relacy's business. A waiter that nobody wakes is an invalid end state.

   -DMODE=0|1|2       fifo, barging, adaptive
   -DT0=t -DT1 -DT2   tiers of the callers: 0 critical, 1 normal, 2 best effort
   -DQUEUE=n          places in line
   -DTIMED=m          whose time may run out, one bit each; the others must be served
   -DM_...            a seeded error; the search must fail */
#ifndef MODE
#define MODE 2
#endif
#ifndef T0
#define T0 0
#define T1 1
#define T2 2
#endif
#ifndef QUEUE
#define QUEUE 2
#endif
#ifndef TIMED
#define TIMED 2
#endif
#define N 3
#define NONE 255
#define LOOSE (MODE != 0)
#define TOTAL (len(line[0]) + len(line[1]) + len(line[2]))

#define pending 0
#define admitted 1
#define rejected 2

#define sleeping 0
#define poke 1
#define done 2

/* The word: changed in single steps. `used` is the truth beside it, and W2 says room == limit - used. */
short room = 1;
bool quiet = true;
byte limit = 1;
byte used = 0;

byte coming = 0; /* releases that saw quiet clear and have not yet had the lock */

bool locked = false;
bool closed = false;
chan line[3] = [N] of { byte };
byte poked = NONE;

byte tier[N];
byte verdict[N];
byte signal[N];
bool queued[N];
bool starved[N];
bool roused[N]; /* woken by a release before it had the lock */
byte finished = 0;

inline acquire_lock() { atomic { !locked -> locked = true } }
/* L1: whoever leaves the lock leaves no free unit to a waiter whom nobody is about to serve. */
inline release_lock() {
  d_step {
    assert(TOTAL == 0 || room < 1 || poked != NONE || coming > 0);
    locked = false
  }
}

inline head(h) {
  d_step {
    if
    :: len(line[0]) > 0 -> line[0]?<h>
    :: len(line[0]) == 0 && len(line[1]) > 0 -> line[1]?<h>
    :: len(line[0]) + len(line[1]) == 0 && len(line[2]) > 0 -> line[2]?<h>
    :: TOTAL == 0 -> h = NONE
    fi
  }
}

/* Time: the head may have waited too long whenever somebody looks. */
inline look_at_head(h) {
  head(h);
  if
  :: MODE == 2 && h != NONE -> starved[h] = true
  :: true
  fi
}

inline take(took) {
    if
    :: room >= 1 -> room--; used++; took = true
    :: else -> took = false
    fi
}

inline unlink(w) {
  d_step {
    line[tier[w]]??eval(w);
    queued[w] = false;
    if
    :: poked == w -> poked = NONE
    :: else
    fi
  }
}

inline decide(w, v) {
  assert(verdict[w] == pending);
  verdict[w] = v
}

/* Under the lock, what lies between two operations on the word is one step with the one that follows: nobody can tell. */
inline serve() {
  do
  :: atomic {
       look_at_head(h);
       if
       :: h == NONE -> break
       :: h != NONE && LOOSE && !starved[h] ->
          if
          :: poked == NONE && room >= 1 -> poked = h; signal[h] = poke
          :: else
          fi;
          break
       :: h != NONE && !(LOOSE && !starved[h]) ->
          take(took);
          if
          :: !took -> break
          :: else -> unlink(h); decide(h, admitted); tell = tell | (1 << h)
          fi
       fi
     }
  od
}

inline attend() {
  do
  :: serve();
     atomic {
       head(h);
       if
       :: h == NONE -> want = !closed
       :: else -> want = !closed && poked != NONE && !starved[h]
       fi;
       h = NONE;
       if
       :: want == quiet -> break
       :: want && !quiet -> quiet = true; break
       :: !want && quiet -> quiet = false
#ifdef M_NO_RECHECK
          ; break
#endif
       fi
     }
  od
}

/* Tells those decided, one by one, after the lock is gone. */
inline publish() {
  do
  :: tell & 1 -> signal[0] = done; tell = tell & 6
  :: tell & 2 -> signal[1] = done; tell = tell & 5
  :: tell & 4 -> signal[2] = done; tell = tell & 3
  :: tell == 0 -> break
  od
}

proctype Caller(byte w) {
  byte h = NONE;
  byte tell = 0;
  bool took = false, got = false, want = false, saw = false;

  /* try_pass */
  atomic {
    if
    :: quiet && room >= 1 ->
       assert(!closed || locked);
       assert(locked || TOTAL == 0 || poked != NONE); /* W3, L3 */
       room--; used++;
       goto inside
    :: else
    fi
  };

  /* enter */
  atomic {
  acquire_lock();
  if
  :: closed -> release_lock(); goto out
  :: else
  fi;
  look_at_head(h);
  if
  :: (len(line[0]) + (tier[w] > 0 -> len(line[1]) : 0) + (tier[w] > 1 -> len(line[2]) : 0) == 0) ||
     (LOOSE && (h == NONE || !starved[h])) -> take(took)
  :: else -> took = false
  fi;
  if
  :: took -> release_lock(); goto inside
  :: else
  fi;
  if
  :: TOTAL >= QUEUE ->
     d_step { /* the newest of the lowest tier, if that is below this call's; there are at most two of one tier */
       h = NONE;
       if
       :: tier[w] < 2 && len(line[2]) == 1 -> line[2]?<h>
       :: tier[w] < 2 && len(line[2]) == 2 -> line[2]?h; line[2]!h; line[2]?h; line[2]!h
       :: tier[w] < 1 && len(line[2]) == 0 && len(line[1]) == 1 -> line[1]?<h>
       :: tier[w] < 1 && len(line[2]) == 0 && len(line[1]) == 2 -> line[1]?h; line[1]!h; line[1]?h; line[1]!h
       :: else
       fi
     };
     if
     :: h == NONE -> release_lock(); goto out
     :: else ->
#ifndef M_EVICTED_STAYS
        unlink(h);
#endif
        decide(h, rejected);
        tell = tell | (1 << h)
     fi
  :: else
  fi;
  line[tier[w]]!w;
  queued[w] = true
  };
  attend();
  if
  :: verdict[w] == admitted -> tell = tell & (7 - (1 << w)); took = true
  :: else -> took = false
  fi;
  release_lock();
  publish();
  if
  :: took -> goto inside
  :: else
  fi;

  /* wait */
  want = (TIMED >> w) & 1; /* here: its time may still run out */
  do
  :: signal[w] == done ->
     if
     :: verdict[w] == admitted -> goto inside
     :: else -> goto out
     fi
  :: atomic {
       signal[w] == poke || (roused[w] && signal[w] == sleeping);
       if
       :: signal[w] == poke -> signal[w] = sleeping
       :: else -> roused[w] = false
       fi
     };
     acquire_lock();
     took = false;
     got = false;
     saw = want; /* attend() uses `want` and `took` */
     if
     :: verdict[w] == pending ->
#ifndef M_NO_REARM
        if
        :: poked == w -> poked = NONE
        :: else
        fi;
#endif
        atomic {
          head(h);
          if
          :: h == w -> take(took)
          :: else
          fi;
          if
          :: took -> unlink(w); decide(w, admitted); got = true
          :: else
          fi
        };
        attend()
     :: else
     fi;
     want = saw;
     release_lock();
     publish();
     if
     :: got -> goto inside
     :: else
     fi
  :: want -> /* timeout */
     acquire_lock();
     if
     :: queued[w] ->
        unlink(w);
        decide(w, rejected);
#ifndef M_POKE_NOT_PASSED_ON
        attend();
#endif
        release_lock();
        publish();
        goto out
     :: else ->
        release_lock();
#ifdef M_GRANT_DROPPED
        goto out;
#endif
        want = false
     fi
  od;

inside:
  assert(used <= 2);
  /* give_back */
  d_step { assert(room == limit - used); room++; used--; saw = quiet; coming = coming + !quiet };
  if
  :: saw -> goto out
  :: else
  fi;
  atomic { /* rouse */
    head(h);
    if
    :: h != NONE && room >= 1 -> roused[h] = true
    :: else
    fi;
    h = NONE
  };
  atomic { acquire_lock(); coming-- };
  attend();
  release_lock();
  publish();
out:
  finished++
}

/* Grows, shrinks and closes, or leaves it. */
proctype Steering() {
  byte h = NONE;
  byte tell = 0;
  bool took = false, want = false;
  if
  :: acquire_lock();
     d_step { limit = 2; room++ };
#ifndef M_GROW_SILENT
     attend();
#endif
     release_lock();
     publish();
     if
     :: acquire_lock();
#ifdef M_SHRINK_BESIDE_THE_WORD
        limit = 1;
#else
        d_step { limit = 1; room-- };
#endif
        attend();
        release_lock();
        publish()
     :: true
     fi
  :: true
  fi;
  if
  :: acquire_lock();
     atomic {
       closed = true;
       do
       :: head(h);
          if
          :: h == NONE -> break
          :: else ->
             unlink(h);
             decide(h, rejected);
#ifndef M_CLOSE_SILENT
             tell = tell | (1 << h)
#endif
          fi
       od
     };
     attend();
     release_lock();
     publish()
  :: true
  fi;
  finished++
}

init {
  tier[0] = T0; tier[1] = T1; tier[2] = T2;
  atomic { run Caller(0); run Caller(1); run Caller(2); run Steering() };
  finished == N + 1;
  assert(used == 0 && room == limit);
  assert(TOTAL == 0 && poked == NONE && !locked);
  assert(quiet == !closed)
}
