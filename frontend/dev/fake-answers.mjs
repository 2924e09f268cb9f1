// What the mock server's "model" says. A question that starts with one of these words gets a special answer.

const CODE = `Here is a function that does it, and how to call it:

1. Install what it needs:

   \`\`\`bash
   pip install httpx
   \`\`\`

2. Then fetch all pages at once:

\`\`\`python
import asyncio
import httpx


async def fetch(urls: list[str], limit: int = 8) -> list[str]:
    """Fetch every URL, at most \`limit\` at a time."""
    gate = asyncio.Semaphore(limit)
    async with httpx.AsyncClient(timeout=10) as client:

        async def one(url: str) -> str:
            async with gate:
                response = await client.get(url)
                return response.raise_for_status().text

        return await asyncio.gather(*(one(url) for url in urls))
\`\`\`

| limit | time | remark |
|------:|-----:|:-------|
| 1 | 9.8 s | one after another |
| 8 | 1.4 s | a good start |
| 64 | 1.2 s | the server slows down |

> Raise the limit only while the time still falls.

See [the documentation](https://www.python-httpx.org/) for more.`;

const KOREAN = `서울에서 하루를 보낸다면 **“천천히 걷기”**를 권합니다. 아래처럼 나누면 무리가 없습니다.

### 오전 — 궁과 골목
- **경복궁**은 문을 여는 9시에 맞춰 가면 한산합니다. 관람은 1~2시간이면 충분합니다.
- 이어서 북촌의 *골목길*을 걸어 보세요. 주민이 사는 곳이니 조용히 다니는 것이 예의입니다.

### 오후 — 시장과 강
1. 광장시장에서 **빈대떡**과 마약김밥을 드셔 보세요. 10~20분 정도 줄을 설 수 있습니다.
2. 해 질 무렵에는 한강공원으로 가세요. \`뚝섬유원지역\`에서 내리면 바로입니다.

> 여름에는 오후 2시~4시가 가장 더우니 실내 일정으로 바꾸는 것이 좋습니다.

필요하시면 **비 오는 날** 일정도 만들어 드리겠습니다.`;

const PLAIN = `A pagoda is a tower with several tiers, each with its own roof. The form began in India as the **stupa**, a mound
that kept relics, and changed on its way east:

- In *China* it grew tall and could be climbed.
- In *Korea* it was mostly built of granite, and small enough to stand in a temple's yard.
- In *Japan* it was built of wood around a central pillar, which lets it sway in an earthquake without falling.

What stayed the same is the idea: every tier rests on the one below, and the highest carries the least.`;

const LONG = Array.from(
  { length: 40 },
  (_, index) => `**Paragraph ${index + 1}.** ${PLAIN.split('\n\n')[0].replaceAll('\n', ' ')}`,
).join('\n\n');

const HOSTILE = `<script>alert(1)</script><img src=x onerror=alert(1)> [click](javascript:alert(1)) ![pixel](https://tracker.example/p.png)`;

export function answerTo(question) {
  if (question.startsWith('/code')) return CODE;
  if (question.startsWith('/long')) return LONG;
  if (question.startsWith('/hostile')) return HOSTILE;
  return /[가-힣]/.test(question) ? KOREAN : PLAIN;
}

/** Pieces of the size of tokens; a character is never cut in half. */
export function tokensOf(text) {
  return text.match(/\s?[\p{L}\p{N}]{1,4}|\s?[^\p{L}\p{N}\s]|\s/gu) ?? [];
}
